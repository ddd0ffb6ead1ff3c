//! Texts made of numbers: `{prefix}{separator}{number}`, and more numbers.

use crate::columns::Values;

/// A text per row: `prefix`, then the row's number of each column, each behind `separator`. Columns are as long as the
/// first; their numbers are eight bytes each, as the machine has them.
pub fn numbered(prefix: &[u8], separator: &[u8], columns: &[&[u8]]) -> Values {
    let rows = columns.first().map_or(0, |column| column.len() / 8);
    let mut values = Values::default();
    values.offsets.reserve(4 * rows);
    let mut places: Vec<_> = columns.iter().map(|column| (column.chunks_exact(8), Text::default())).collect();
    for _ in 0..rows {
        values.data.extend_from_slice(prefix);
        for (numbers, text) in &mut places {
            let number = numbers.next().and_then(<[u8]>::first_chunk).map_or(0, |eight| i64::from_ne_bytes(*eight));
            values.data.extend_from_slice(separator);
            values.data.extend_from_slice(text.of(number));
        }
        values.end();
    }
    values
}

/// The decimal digits of the number that was asked for last, which is mostly the next one's too.
struct Text {
    number: i64,
    begin: usize,
    digits: [u8; 20],
}

impl Default for Text {
    fn default() -> Self {
        Text { number: 0, begin: 19, digits: [b'0'; 20] }
    }
}

impl Text {
    #[inline]
    fn of(&mut self, number: i64) -> &[u8] {
        if number != self.number {
            self.number = number;
            self.begin = self.digits.len();
            let mut left = number.unsigned_abs();
            loop {
                self.begin -= 1;
                self.digits[self.begin] = b'0' + (left % 10) as u8;
                left /= 10;
                if left == 0 {
                    break;
                }
            }
            if number < 0 {
                self.begin -= 1;
                self.digits[self.begin] = b'-';
            }
        }
        &self.digits[self.begin..]
    }
}

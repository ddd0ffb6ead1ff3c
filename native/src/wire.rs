//! Protobuf's wire format, read from bytes that may be anything: no length is believed before it is checked.

use std::fmt;

/// What is wrong with a body, and where.
#[derive(Debug, PartialEq)]
pub struct Malformed {
    pub what: &'static str,
    pub at: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{} at byte {}", self.what, self.at)
    }
}

pub type Found<T> = Result<T, Malformed>;

/// A tag is the number of a field and the type of its value.
pub const VARINT: u32 = 0;
const FIXED64: u32 = 1;
pub const BYTES: u32 = 2;
const GROUP: u32 = 3;
const GROUP_END: u32 = 4;
pub const FIXED32: u32 = 5;

/// How deep groups, a kind of field that nobody uses any more, may be in one another. Protobuf's parsers allow 100 with
/// the messages around them.
const DEEPEST: usize = 96;

pub const fn tag_of(field: u32, kind: u32) -> u32 {
    field << 3 | kind
}

/// What is left of a message. Errors name the address of a byte, from which `walk` makes its place in the body.
#[derive(Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    #[cold]
    fn malformed<T>(&self, what: &'static str) -> Found<T> {
        Err(Malformed { what, at: self.address() })
    }

    /// A number of at most ten bytes; bits beyond 64 are lost, as in every parser of protobuf.
    #[inline(always)]
    pub fn varint(&mut self) -> Found<u64> {
        match *self.0 {
            [byte, ref rest @ ..] if byte < 0x80 => {
                self.0 = rest;
                Ok(u64::from(byte))
            }
            [low, high, ref rest @ ..] if high < 0x80 => {
                self.0 = rest;
                Ok(u64::from(low & 0x7F) | u64::from(high) << 7)
            }
            _ => self.long_varint(),
        }
    }

    #[cold]
    fn long_varint(&mut self) -> Found<u64> {
        let mut value = 0u64;
        for (place, &byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * place);
            if byte < 0x80 {
                self.0 = &self.0[place + 1..];
                return Ok(value);
            }
        }
        self.malformed("a number that does not end")
    }

    #[inline(always)]
    pub fn tag(&mut self) -> Found<u32> {
        let begin = *self;
        match u32::try_from(self.varint()?) {
            Ok(tag) if tag >= 8 => Ok(tag),
            _ => begin.malformed("a field number that there cannot be"),
        }
    }

    /// The bytes of a field of type `BYTES`; this reader is behind them afterwards.
    #[inline(always)]
    pub fn bytes(&mut self) -> Found<&'a [u8]> {
        let begin = *self;
        let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        match self.0.split_at_checked(length) {
            Some((bytes, rest)) => {
                self.0 = rest;
                Ok(bytes)
            }
            None => begin.malformed("a length beyond the end"),
        }
    }

    pub fn fixed32(&mut self) -> Found<u32> {
        match self.0.split_first_chunk::<4>() {
            Some((four, rest)) => {
                self.0 = rest;
                Ok(u32::from_le_bytes(*four))
            }
            None => self.malformed("four bytes that are not there"),
        }
    }

    /// Goes past the value of a field that nobody reads.
    pub fn skip(&mut self, tag: u32) -> Found<()> {
        match tag & 7 {
            VARINT => self.varint().map(|_| ()),
            BYTES => self.bytes().map(|_| ()),
            FIXED32 => self.fixed32().map(|_| ()),
            FIXED64 => self.fixed32().and_then(|_| self.fixed32()).map(|_| ()),
            GROUP => self.skip_group(tag >> 3),
            _ => self.malformed("a type of field that there is not"),
        }
    }

    #[cold]
    fn skip_group(&mut self, field: u32) -> Found<()> {
        let mut open = vec![field];
        while let Some(&innermost) = open.last() {
            let begin = *self;
            let tag = self.tag()?;
            match tag & 7 {
                GROUP if open.len() == DEEPEST => return begin.malformed("too many groups in one another"),
                GROUP => open.push(tag >> 3),
                GROUP_END if tag >> 3 == innermost => drop(open.pop()),
                _ => self.skip(tag)?,
            }
        }
        Ok(())
    }
}

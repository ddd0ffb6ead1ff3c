//! JSON texts to the columns of a type, level by level, for `airflow_provider_slshudi.rows.documents`.

use crate::columns::Values;
use crate::json::{parse, Json, Step};

/// One level of a type: what it is, and which levels are within it, all of which come later.
pub enum Kind {
    /// Texts, of which any value is one.
    Text,
    /// Texts, of which lists and objects are none.
    Scalar,
    List(usize),
    Map(usize),
    Struct(Vec<(Vec<u8>, usize)>),
}

/// What a level has: a value for each of its places.
#[derive(Default)]
pub struct Level {
    /// One byte per value, 0 where it is NULL.
    pub valid: Vec<u8>,
    /// Of texts: the text in which the value stands, by its number; 32 bits each.
    pub rows: Vec<u8>,
    /// Of lists and maps: where the value's items begin on the level below, 32 bits each, and in the end their count.
    pub begins: Vec<u8>,
    /// Texts; of maps the keys.
    pub texts: Values,
}

/// The texts' levels. A text that is no JSON, or does not fit, is NULL on the first one.
pub fn shred<'a>(texts: impl Iterator<Item = Option<&'a [u8]>>, kinds: &[Kind]) -> Vec<Level> {
    let mut shredder = Shredder { kinds, levels: kinds.iter().map(|_| Level::default()).collect() };
    for (row, text) in texts.enumerate() {
        let value = text.and_then(parse).filter(|value| shredder.fits(value, 0)).unwrap_or(Json::Null);
        shredder.put(&value, 0, &(row as u32).to_ne_bytes());
    }
    for (kind, place) in kinds.iter().zip(0..) {
        if let Kind::List(within) | Kind::Map(within) = kind {
            let count = shredder.count(*within);
            shredder.levels[place].begins.extend_from_slice(&count);
        }
    }
    shredder.levels
}

/// What is at a path, as a column's text; per text 0 where there is nothing, 1 where there is, 2 where it is no JSON.
pub fn pick<'a>(texts: impl Iterator<Item = Option<&'a [u8]>>, steps: &[Step]) -> (Values, Vec<u8>) {
    let (mut values, mut states) = (Values::default(), Vec::new());
    for text in texts {
        states.push(match text.map(parse) {
            None => 0,
            Some(None) => 2,
            Some(Some(value)) => value.at(steps).is_some_and(|found| found.write_text(&mut values.data)).into(),
        });
        values.end();
    }
    (values, states)
}

struct Shredder<'a> {
    kinds: &'a [Kind],
    levels: Vec<Level>,
}

impl Shredder<'_> {
    fn fits(&self, value: &Json, place: usize) -> bool {
        match (&self.kinds[place], value) {
            (_, Json::Null) => true,
            (Kind::Text, _) => true,
            (Kind::Scalar, _) => !matches!(value, Json::List(_) | Json::Object(_)),
            (Kind::List(within), Json::List(items)) => items.iter().all(|item| self.fits(item, *within)),
            (Kind::Map(within), Json::Object(fields)) => fields.iter().all(|(_, item)| self.fits(item, *within)),
            (Kind::Struct(fields), Json::Object(_)) => {
                fields.iter().all(|(name, within)| value.get(name).is_none_or(|item| self.fits(item, *within)))
            }
            _ => false,
        }
    }

    fn count(&self, place: usize) -> [u8; 4] {
        i32::try_from(self.levels[place].valid.len()).expect("less than 2^31 items").to_ne_bytes()
    }

    /// Adds a value that fits.
    fn put(&mut self, value: &Json, place: usize, row: &[u8]) {
        let kinds = self.kinds;
        let is_there = !matches!(value, Json::Null);
        self.levels[place].valid.push(is_there.into());
        match &kinds[place] {
            Kind::Text | Kind::Scalar => {
                let level = &mut self.levels[place];
                value.write_text(&mut level.texts.data);
                level.texts.end();
                level.rows.extend_from_slice(row);
            }
            Kind::List(within) => {
                let begin = self.count(*within);
                self.levels[place].begins.extend_from_slice(&begin);
                if let Json::List(items) = value {
                    items.iter().for_each(|item| self.put(item, *within, row));
                }
            }
            Kind::Map(within) => {
                let begin = self.count(*within);
                self.levels[place].begins.extend_from_slice(&begin);
                if let Json::Object(fields) = value {
                    for (name, item) in fields {
                        self.levels[place].texts.push(name);
                        self.put(item, *within, row);
                    }
                }
            }
            Kind::Struct(fields) => {
                for (name, within) in fields {
                    self.put(value.get(name).unwrap_or(&Json::Null), *within, row);
                }
            }
        }
    }
}

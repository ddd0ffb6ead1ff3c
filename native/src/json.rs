//! JSON texts as values (rfc-editor.org/rfc/rfc8259), and the places within them that paths name. Numbers stay as they
//! are written; also NaN and infinities, which many writers write, are numbers.

use std::borrow::Cow;
use std::collections::HashMap;

/// How many arrays and objects may be within each other.
pub const DEEPEST: usize = 100;

pub enum Json<'a> {
    Null,
    Flag(bool),
    Number(&'a [u8]),
    Text(Cow<'a, [u8]>),
    List(Vec<Json<'a>>),
    /// Each name once, with the value that it has last, where it was first.
    Object(Vec<(Cow<'a, [u8]>, Json<'a>)>),
}

pub enum Step {
    Name(Vec<u8>),
    Index(usize),
}

/// The value that `text`, which is UTF-8, is; None where it is no JSON.
pub fn parse(text: &[u8]) -> Option<Json<'_>> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.blanks();
    (reader.at == text.len()).then_some(value)
}

impl<'a> Json<'a> {
    pub fn get(&self, name: &[u8]) -> Option<&Json<'a>> {
        match self {
            Json::Object(fields) => fields.iter().find(|(key, _)| key.as_ref() == name).map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn at(&self, steps: &[Step]) -> Option<&Json<'a>> {
        steps.iter().try_fold(self, |value, step| match (step, value) {
            (Step::Name(name), _) => value.get(name),
            (Step::Index(index), Json::List(items)) => items.get(*index),
            _ => None,
        })
    }

    /// Adds the value as a column's text: texts without quotes, all else as JSON; false where it is null.
    pub fn write_text(&self, out: &mut Vec<u8>) -> bool {
        match self {
            Json::Null => return false,
            Json::Text(text) => out.extend_from_slice(text),
            _ => self.write(out),
        }
        true
    }

    /// Adds JSON without spaces.
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Json::Null => out.extend_from_slice(b"null"),
            Json::Flag(true) => out.extend_from_slice(b"true"),
            Json::Flag(false) => out.extend_from_slice(b"false"),
            Json::Number(text) => out.extend_from_slice(text),
            Json::Text(text) => quote(text, out),
            Json::List(items) => {
                out.push(b'[');
                for (number, item) in items.iter().enumerate() {
                    if number > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Json::Object(fields) => {
                out.push(b'{');
                for (number, (name, value)) in fields.iter().enumerate() {
                    if number > 0 {
                        out.push(b',');
                    }
                    quote(name, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0C => out.extend_from_slice(b"\\f"),
            0..=0x1F => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn blanks(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn value(&mut self, depth: usize) -> Option<Json<'a>> {
        self.blanks();
        match self.text.get(self.at)? {
            b'{' => self.object(depth + 1),
            b'[' => self.list(depth + 1),
            b'"' => self.string().map(Json::Text),
            b't' => self.take(b"true").map(|()| Json::Flag(true)),
            b'f' => self.take(b"false").map(|()| Json::Flag(false)),
            b'n' => self.take(b"null").map(|()| Json::Null),
            _ => self.number().map(Json::Number),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json<'a>> {
        self.at += 1;
        let mut fields = Vec::new();
        self.blanks();
        if depth > DEEPEST {
            return None;
        }
        if self.take(b"}").is_some() {
            return Some(Json::Object(fields));
        }
        loop {
            self.blanks();
            let name = self.string()?;
            self.blanks();
            self.take(b":")?;
            fields.push((name, self.value(depth)?));
            self.blanks();
            match self.next()? {
                b',' => {}
                b'}' => return Some(Json::Object(each_once(fields))),
                _ => return None,
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<Json<'a>> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if depth > DEEPEST {
            return None;
        }
        if self.take(b"]").is_some() {
            return Some(Json::List(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.blanks();
            match self.next()? {
                b',' => {}
                b']' => return Some(Json::List(items)),
                _ => return None,
            }
        }
    }

    fn string(&mut self) -> Option<Cow<'a, [u8]>> {
        self.take(b"\"")?;
        let begin = self.at;
        let mut changed: Option<Vec<u8>> = None;
        let mut from = begin;
        loop {
            match self.next()? {
                b'"' => {
                    let rest = &self.text[from..self.at - 1];
                    return Some(match changed {
                        None => Cow::Borrowed(rest),
                        Some(mut text) => {
                            text.extend_from_slice(rest);
                            Cow::Owned(text)
                        }
                    });
                }
                b'\\' => {
                    let text = changed.get_or_insert_with(Vec::new);
                    text.extend_from_slice(&self.text[from..self.at - 1]);
                    let character = self.escaped()?;
                    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    from = self.at;
                }
                0..=0x1F => return None,
                _ => {}
            }
        }
    }

    /// What stands for a backslash and what follows it; half a surrogate pair is no character.
    fn escaped(&mut self) -> Option<char> {
        Some(match self.next()? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\x08',
            b'f' => '\x0C',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hexadecimal()?;
                if !(0xD800..0xDC00).contains(&first) {
                    return char::from_u32(first);
                }
                self.take(b"\\u")?;
                let second = self.hexadecimal()?;
                if !(0xDC00..0xE000).contains(&second) {
                    return None;
                }
                return char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00));
            }
            _ => return None,
        })
    }

    fn hexadecimal(&mut self) -> Option<u32> {
        (0..4).try_fold(0, |value, _| Some(value * 16 + char::from(self.next()?).to_digit(16)?))
    }

    fn number(&mut self) -> Option<&'a [u8]> {
        let begin = self.at;
        if self.take(b"NaN").is_some() {
            return Some(&self.text[begin..self.at]);
        }
        let _ = self.take(b"-");
        if self.take(b"Infinity").is_none() {
            if self.take(b"0").is_none() {
                self.digits()?;
            }
            if self.take(b".").is_some() {
                self.digits()?;
            }
            if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
                self.at += 1;
                if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                    self.at += 1;
                }
                self.digits()?;
            }
        }
        Some(&self.text[begin..self.at])
    }

    fn digits(&mut self) -> Option<()> {
        let begin = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        (self.at > begin).then_some(())
    }
}

type Fields<'a> = Vec<(Cow<'a, [u8]>, Json<'a>)>;

fn each_once<'a>(fields: Fields<'a>) -> Fields<'a> {
    let few = fields.len() <= 16;
    let repeats =
        few && (1..fields.len()).any(|place| fields[..place].iter().any(|(name, _)| *name == fields[place].0));
    if few && !repeats {
        return fields;
    }
    let mut places: HashMap<Cow<'a, [u8]>, usize> = HashMap::new();
    let mut once: Fields<'a> = Vec::new();
    for (name, value) in fields {
        match places.get(&name) {
            Some(&place) => once[place].1 = value,
            None => {
                places.insert(name.clone(), once.len());
                once.push((name, value));
            }
        }
    }
    once
}

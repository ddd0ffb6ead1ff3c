//! What is too slow in Python's libraries: the log service's protobuf answers to Arrow's buffers, for
//! `airflow_provider_slshudi.sls.native_decode`, texts made of numbers, for `airflow_provider_slshudi.system.native`, and JSON,
//! for `airflow_provider_slshudi.rows.documents`.

mod columns;
mod json;
mod keys;
mod levels;
mod rest;
mod texts;
mod walk;
mod wire;

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use columns::{Validity, Values};
use json::Step;
use levels::Kind;

type Buffer<'py> = Option<Bound<'py, PyBytes>>;
/// A column: how many rows are NULL, and Arrow's buffers, of which the first says which.
type Column<'py> = (usize, Vec<Buffer<'py>>);
/// How many log groups and rows; the columns; how many entries all maps have together, where each row's entries end, and
/// their keys and values.
type Decoded<'py> = (usize, usize, Vec<Column<'py>>, (usize, Buffer<'py>, Column<'py>, Column<'py>));

/// The logs of a LogGroupList whose first log group has cursor `first`: the columns that every log has, then those of
/// `keys`, then the map of what is left. Raises ValueError where the body is malformed, and OverflowError where copies of
/// topics, sources and tags would take more than `most` bytes.
#[pyfunction]
fn decode<'py>(py: Python<'py>, body: &[u8], first: i64, keys: Vec<Vec<u8>>, most: u64) -> PyResult<Decoded<'py>> {
    let table = py.detach(|| walk::walk(body, first, &keys, most)).map_err(|error| match error.what {
        walk::WIDE => PyOverflowError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    })?;
    let (rows, meta, rest) = (table.rows, table.meta, table.rest);
    let buffer = |bytes: Vec<u8>| Some(PyBytes::new(py, &bytes));
    let binary = |values: Values, valid: Validity| {
        let (nulls, bits) = (valid.nulls, valid.finish(rows));
        (nulls, vec![bits.and_then(buffer), buffer(values.offsets), buffer(values.data)])
    };
    let every = |values: Values| binary(values, Validity::default());
    let (nulls, has_nanoseconds) = (meta.has_nanoseconds.nulls, meta.has_nanoseconds.finish(rows));
    let mut columns = vec![
        (0, vec![None, buffer(meta.cursors)]),
        (0, vec![None, buffer(meta.places)]),
        (0, vec![None, buffer(meta.times)]),
        (nulls, vec![has_nanoseconds.and_then(buffer), buffer(meta.nanoseconds)]),
        every(meta.topics),
        every(meta.sources),
    ];
    columns.extend(table.columns.into_iter().map(|column| binary(column.values, column.valid)));
    Ok((table.groups, rows, columns, (rest.entries, buffer(rest.ends), every(rest.names), every(rest.values))))
}

/// Offsets and data of a text per row: `prefix`, then the number of each column, each behind `separator`. A column is
/// 64-bit numbers; all have the same length.
#[pyfunction]
fn numbered<'py>(
    py: Python<'py>,
    prefix: &str,
    separator: &str,
    columns: Vec<PyBackedBytes>,
) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
    let columns: Vec<&[u8]> = columns.iter().map(|column| &column[..]).collect();
    let values = py.detach(|| texts::numbered(prefix.as_bytes(), separator.as_bytes(), &columns));
    (PyBytes::new(py, &values.offsets), PyBytes::new(py, &values.data))
}

type Bytes<'py> = Bound<'py, PyBytes>;

/// Texts as Arrow has them: offsets of 32 bits, data, and one byte per text, 0 where it is NULL.
struct Texts<'a>(&'a [u8], &'a [u8], &'a [u8]);

impl<'a> Texts<'a> {
    fn checked(offsets: &'a [u8], data: &'a [u8], valid: &'a [u8]) -> PyResult<Self> {
        let places: Vec<i32> =
            offsets.chunks_exact(4).flat_map(<[u8]>::first_chunk).map(|p| i32::from_ne_bytes(*p)).collect();
        let rise = places.first().is_some_and(|&first| first >= 0) && places.windows(2).all(|pair| pair[0] <= pair[1]);
        if !rise || places.len() != valid.len() + 1 || places.last().is_some_and(|&last| last as usize > data.len()) {
            return Err(PyValueError::new_err("offsets that do not agree with the data"));
        }
        Ok(Texts(offsets, data, valid))
    }

    fn iter(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let Texts(offsets, data, valid) = *self;
        let place = |index: usize| offsets[4 * index..].first_chunk().map_or(0, |p| i32::from_ne_bytes(*p) as usize);
        (0..valid.len()).map(move |row| (valid[row] != 0).then(|| &data[place(row)..place(row + 1)]))
    }
}

/// The levels of JSON texts. A level of the type is its kind ("text", "scalar", "list", "map", "struct") and the names and
/// numbers of the levels within. Of each level come: one byte per value, 0 where it is NULL; of texts the number of the
/// text that each stands in; of lists and maps where items begin; offsets and data of texts, of maps those of keys.
#[pyfunction]
#[allow(clippy::type_complexity)]
fn shred<'py>(
    py: Python<'py>,
    offsets: &[u8],
    data: &[u8],
    valid: &[u8],
    levels: Vec<(String, Vec<(String, usize)>)>,
) -> PyResult<Vec<[Bytes<'py>; 5]>> {
    let texts = Texts::checked(offsets, data, valid)?;
    let count = levels.len();
    let mut kinds = Vec::new();
    for (place, (name, within)) in levels.into_iter().enumerate() {
        let first = within.first().map(|(_, level)| *level);
        if within.iter().any(|(_, level)| *level <= place || *level >= count) {
            return Err(PyValueError::new_err("a level comes after the one it is within"));
        }
        kinds.push(match (name.as_str(), first) {
            ("text", None) => Kind::Text,
            ("scalar", None) => Kind::Scalar,
            ("list", Some(level)) => Kind::List(level),
            ("map", Some(level)) => Kind::Map(level),
            ("struct", _) => Kind::Struct(within.into_iter().map(|(name, level)| (name.into_bytes(), level)).collect()),
            _ => return Err(PyValueError::new_err(format!("{name} is no kind of level"))),
        });
    }
    let made = py.detach(|| levels::shred(texts.iter(), &kinds));
    let bytes = |bytes: Vec<u8>| PyBytes::new(py, &bytes);
    let parts = made
        .into_iter()
        .map(|level| [level.valid, level.rows, level.begins, level.texts.offsets, level.texts.data].map(bytes));
    Ok(parts.collect())
}

/// Offsets and data of what is at a path in JSON texts, and per text 0 where there is nothing, 1 where there is, 2 where it
/// is no JSON. A step is a name, or where that is None a place in a list.
#[pyfunction]
fn pick<'py>(
    py: Python<'py>,
    offsets: &[u8],
    data: &[u8],
    valid: &[u8],
    steps: Vec<(Option<String>, usize)>,
) -> PyResult<[Bytes<'py>; 3]> {
    let texts = Texts::checked(offsets, data, valid)?;
    let steps: Vec<Step> = steps
        .into_iter()
        .map(|(name, index)| name.map_or(Step::Index(index), |name| Step::Name(name.into_bytes())))
        .collect();
    let (values, states) = py.detach(|| levels::pick(texts.iter(), &steps));
    Ok([values.offsets, values.data, states].map(|bytes| PyBytes::new(py, &bytes)))
}

#[pymodule]
fn slshudi_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(decode, module)?)?;
    module.add_function(wrap_pyfunction!(numbered, module)?)?;
    module.add_function(wrap_pyfunction!(shred, module)?)?;
    module.add_function(wrap_pyfunction!(pick, module)?)
}

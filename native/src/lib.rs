//! What is too slow in Python's libraries: the log service's protobuf answers to Arrow's buffers, for
//! `airflow_provider_slshudi.sls.native_decode`, and texts made of numbers, for `airflow_provider_slshudi.numbered`.

mod columns;
mod keys;
mod rest;
mod texts;
mod walk;
mod wire;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use columns::{Validity, Values};

type Buffer<'py> = Option<Bound<'py, PyBytes>>;
/// A column: how many rows are NULL, and Arrow's buffers, of which the first says which.
type Column<'py> = (usize, Vec<Buffer<'py>>);
/// How many log groups and rows; the columns; how many entries all maps have together, where each row's entries end, and
/// their keys and values.
type Decoded<'py> = (usize, usize, Vec<Column<'py>>, (usize, Buffer<'py>, Column<'py>, Column<'py>));

/// The logs of a LogGroupList whose first log group has cursor `first`: the columns that every log has, then those of
/// `keys`, then the map of what is left. Raises ValueError where the body is malformed.
#[pyfunction]
fn decode<'py>(py: Python<'py>, body: &[u8], first: i64, keys: Vec<Vec<u8>>) -> PyResult<Decoded<'py>> {
    let table =
        py.detach(|| walk::walk(body, first, &keys)).map_err(|error| PyValueError::new_err(error.to_string()))?;
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
    py: Python<'py>, prefix: &str, separator: &str, columns: Vec<PyBackedBytes>,
) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
    let columns: Vec<&[u8]> = columns.iter().map(|column| &column[..]).collect();
    let values = py.detach(|| texts::numbered(prefix.as_bytes(), separator.as_bytes(), &columns));
    (PyBytes::new(py, &values.offsets), PyBytes::new(py, &values.data))
}

#[pymodule]
fn slshudi_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(decode, module)?)?;
    module.add_function(wrap_pyfunction!(numbered, module)?)
}

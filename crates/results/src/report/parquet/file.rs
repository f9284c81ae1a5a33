//! Writes Parquet files with Snappy compression.

use std::{io::Write, sync::Arc};

use parquet::{
    basic::{Compression, LogicalType, Repetition, Type as Physical},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type},
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::types::Type,
};

use super::Kind;
use crate::report::ReportError;

/// A file written in row groups. Cells are given as text; an empty cell becomes null.
pub(in crate::report) struct ParquetFile<W: Write + Send> {
    file: SerializedFileWriter<W>,
    kinds: Vec<Kind>,
}

impl<W: Write + Send> ParquetFile<W> {
    pub(in crate::report) fn new(columns: &[(String, Kind)], to: W) -> Result<Self, ReportError> {
        let file = begin(columns, to).map_err(wrong)?;
        Ok(Self { file, kinds: columns.iter().map(|(_, kind)| *kind).collect() })
    }

    /// Adds rows, given column by column.
    pub(in crate::report) fn write<'a>(
        &mut self,
        columns: impl IntoIterator<Item = &'a Vec<String>>,
    ) -> Result<(), ReportError> {
        self.write_group(columns).map_err(wrong)
    }

    fn write_group<'a>(
        &mut self,
        columns: impl IntoIterator<Item = &'a Vec<String>>,
    ) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for (kind, cells) in self.kinds.iter().zip(columns) {
            let Some(mut column) = group.next_column()? else { break };
            match kind {
                Kind::Truth => fill::<BoolType>(&mut column, cells, |cell| cell.parse().ok())?,
                Kind::Whole => fill::<Int64Type>(&mut column, cells, |cell| cell.parse().ok())?,
                Kind::Number => fill::<DoubleType>(&mut column, cells, |cell| cell.parse().ok())?,
                Kind::Words => fill::<ByteArrayType>(&mut column, cells, |cell| Some(ByteArray::from(cell)))?,
            }
            column.close()?;
        }
        group.close().map(|_| ())
    }

    pub(in crate::report) fn finish(self) -> Result<(), ReportError> {
        self.file.close().map(|_| ()).map_err(wrong)
    }
}

/// Not a `From` implementation: a second one would make type inference fail elsewhere.
fn wrong(error: ParquetError) -> ReportError {
    ReportError::Parquet(error.to_string())
}

fn begin<W: Write + Send>(
    columns: &[(String, Kind)],
    to: W,
) -> Result<SerializedFileWriter<W>, ParquetError> {
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("table").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties))
}

fn field((name, kind): &(String, Kind)) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Truth => (Physical::BOOLEAN, None),
        Kind::Whole => (Physical::INT64, None),
        Kind::Number => (Physical::DOUBLE, None),
        Kind::Words => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let field = Type::primitive_type_builder(name, physical).with_logical_type(logical);
    field.with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
}

fn fill<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    cells: &[String],
    value: impl Fn(&str) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let value = |cell: &String| if cell.is_empty() { None } else { value(cell) };
    let values: Vec<Option<T::T>> = cells.iter().map(value).collect();
    let is_there: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&values, Some(&is_there), None).map(|_| ())
}

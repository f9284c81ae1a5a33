//! The tensor itself: creation, names, reads and writes.

use std::{fmt, sync::Arc};

use rand_chacha::rand_core::Rng;

use super::{DType, Device, Shape, TensorError, show};
use crate::{
    device::{Purpose, backend::Handle},
    random,
};

/// Elements of a shape on a device. Clones share the memory.
#[derive(Clone)]
pub struct Tensor {
    memory: Arc<Memory>,
    pub(super) shape: Shape,
    dtype: DType,
    pub(super) name: Option<Arc<str>>,
}

struct Memory {
    device: Device,
    handle: Handle,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.device.place().free(self.handle);
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} on {}",
            self.name_or("tensor"),
            self.shape,
            self.dtype.name(),
            self.device().name()
        )
    }
}

impl Tensor {
    /// Uninitialized memory for a result.
    pub fn empty(device: &Device, shape: &[usize]) -> Result<Self, TensorError> {
        let shape = Shape::new(shape);
        let Some(len) = shape.elements() else { return Err(TensorError::TooLarge { shape }) };
        let handle = device.alloc(len)?;
        let memory = Arc::new(Memory { device: device.clone(), handle });
        Ok(Self { memory, shape, dtype: DType::F32, name: None })
    }

    /// Filled with one value, on the device.
    pub fn full(device: &Device, shape: &[usize], value: f32) -> Result<Self, TensorError> {
        let tensor = Self::empty(device, shape)?;
        device.place().fill(tensor.handle(), value)?;
        Ok(tensor)
    }

    pub fn ones(device: &Device, shape: &[usize]) -> Result<Self, TensorError> {
        Self::full(device, shape, 1.0)
    }

    pub fn zeros(device: &Device, shape: &[usize]) -> Result<Self, TensorError> {
        Self::full(device, shape, 0.0)
    }

    /// Uniform in [0, 1), a function of seed and index only. Drawn on the host and copied, so devices do not differ.
    pub fn rand(device: &Device, shape: &[usize], seed: u64, index: u64) -> Result<Self, TensorError> {
        let tensor = Self::empty(device, shape)?;
        let mut stream = random::stream(seed, random::Purpose::Tensor, index);
        // 24 bits: each value is exact in f32 and below 1.
        let numbers = (0..tensor.len()).map(|_| (stream.next_u32() >> 8) as f32 * (1.0 / 16_777_216.0));
        device.write(Purpose::Tensor, tensor.handle(), &numbers.collect::<Vec<f32>>())?;
        Ok(tensor)
    }

    /// From the host's row-major elements.
    ///
    /// # Errors
    /// Their number does not match the shape, or out of device memory.
    pub fn from_values(device: &Device, shape: &[usize], values: &[f32]) -> Result<Self, TensorError> {
        Self::written(device, shape, values, Purpose::Tensor)
    }

    /// [`Tensor::from_values`], counted under `purpose`.
    pub(super) fn written(
        device: &Device,
        shape: &[usize],
        values: &[f32],
        purpose: Purpose,
    ) -> Result<Self, TensorError> {
        let (shape, found) = (Shape::new(shape), values.len());
        if shape.elements() != Some(found) {
            return Err(TensorError::Values { shape, found });
        }
        let tensor = Self::empty(device, shape.axes())?;
        device.write(purpose, tensor.handle(), values)?;
        Ok(tensor)
    }

    /// Sets the name for messages.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    pub fn device(&self) -> &Device {
        &self.memory.device
    }

    /// Lengths of its axes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn len(&self) -> usize {
        self.handle().len
    }

    /// Its bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.len() as u64 * self.dtype.bytes()
    }

    /// Whether both share the same memory.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// Copies the elements to the host.
    #[cfg(test)]
    pub fn values(&self) -> Result<Vec<f32>, TensorError> {
        let mut values = vec![0.0; self.len()];
        self.read(Purpose::Tensor, 0, &mut values)?;
        Ok(values)
    }

    /// Copies elements from `first` on to the host; waits until they are computed.
    ///
    /// # Errors
    /// Out of range, or the device failed.
    pub fn read(&self, purpose: Purpose, first: usize, to: &mut [f32]) -> Result<(), TensorError> {
        Ok(self.device().read(purpose, self.handle(), first, to)?)
    }

    /// Fills it with one value, on the device.
    pub fn fill(&self, value: f32) -> Result<(), TensorError> {
        Ok(self.device().place().fill(self.handle(), value)?)
    }

    /// Replaces all elements by the host's.
    ///
    /// # Errors
    /// Their number does not match, or the device failed.
    pub fn write(&self, values: &[f32]) -> Result<(), TensorError> {
        if values.len() != self.len() {
            return Err(TensorError::Values { shape: self.shape.clone(), found: values.len() });
        }
        Ok(self.device().write(Purpose::Tensor, self.handle(), values)?)
    }

    /// Text with values, shape, type and device; copies the values to the host.
    pub fn show(&self) -> Result<String, TensorError> {
        let mut values = vec![0.0; self.len()];
        self.read(Purpose::Log, 0, &mut values)?;
        Ok(show::show(&values, &self.shape, self.dtype, self.device().name()))
    }

    pub(super) fn handle(&self) -> Handle {
        self.memory.handle
    }

    pub(super) fn name_or(&self, other: &str) -> String {
        self.name.as_deref().unwrap_or(other).to_owned()
    }
}

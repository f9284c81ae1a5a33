//! The tensor itself: made, read, copied, computed with.

use std::{fmt, sync::Arc};

use rand_chacha::rand_core::Rng;

use super::{DType, Device, Shape, TensorError, show};
use crate::{
    device::{
        Purpose,
        backend::{Handle, Reduction},
    },
    random,
};

/// Numbers of a shape on a device. Clones are the same tensor: they share its memory.
#[derive(Clone)]
pub struct Tensor {
    memory: Arc<Memory>,
    shape: Shape,
    dtype: DType,
    name: Option<Arc<str>>,
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
    /// Memory that nobody has written yet: to be the result of something.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn empty(device: &Device, shape: &[usize]) -> Result<Self, TensorError> {
        let shape = Shape::new(shape);
        let Some(len) = shape.elements() else { return Err(TensorError::TooLarge { shape }) };
        let handle = device.alloc(len)?;
        let memory = Arc::new(Memory { device: device.clone(), handle });
        Ok(Self { memory, shape, dtype: DType::F32, name: None })
    }

    /// Filled with one value, on the device itself: nothing is copied.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn full(device: &Device, shape: &[usize], value: f32) -> Result<Self, TensorError> {
        let tensor = Self::empty(device, shape)?;
        device.place().fill(tensor.handle(), value)?;
        Ok(tensor)
    }

    /// Ones.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    pub fn ones(device: &Device, shape: &[usize]) -> Result<Self, TensorError> {
        Self::full(device, shape, 1.0)
    }

    /// Zeros.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    pub fn zeros(device: &Device, shape: &[usize]) -> Result<Self, TensorError> {
        Self::full(device, shape, 0.0)
    }

    /// Uniform in [0, 1): a function of seed and index alone. They are drawn on the host, so that they are the same on
    /// every device, and copied there.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    pub fn rand(device: &Device, shape: &[usize], seed: u64, index: u64) -> Result<Self, TensorError> {
        let tensor = Self::empty(device, shape)?;
        let mut stream = random::stream(seed, random::Purpose::Tensor, index);
        // 24 bits: every one of them is a number of its own in f32, and 1 is none of them.
        let numbers = (0..tensor.len()).map(|_| (stream.next_u32() >> 8) as f32 * (1.0 / 16_777_216.0));
        device.write(Purpose::Tensor, tensor.handle(), &numbers.collect::<Vec<f32>>())?;
        Ok(tensor)
    }

    /// Of the host's numbers, the last axis lying together.
    ///
    /// # Errors
    /// Where there are more or fewer than the shape says, or the device has no room.
    pub fn from_values(device: &Device, shape: &[usize], values: &[f32]) -> Result<Self, TensorError> {
        Self::written(device, shape, values, Purpose::Tensor)
    }

    /// The same for another purpose.
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

    /// With a name for messages.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Where it lives.
    pub fn device(&self) -> &Device {
        &self.memory.device
    }

    /// Lengths of its axes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The type of its numbers.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.handle().len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it takes on its device.
    pub fn bytes(&self) -> u64 {
        self.len() as u64 * self.dtype.bytes()
    }

    /// Whether the other is this very tensor: the same memory, not merely the same numbers.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// Its numbers, copied to the host.
    ///
    /// # Errors
    /// Where the device failed.
    pub fn values(&self) -> Result<Vec<f32>, TensorError> {
        let mut values = vec![0.0; self.len()];
        self.read(Purpose::Tensor, 0, &mut values)?;
        Ok(values)
    }

    /// Some of its numbers, from `first` on, copied to the host; waits until they are computed.
    ///
    /// # Errors
    /// Where there are not so many, or the device failed.
    pub fn read(&self, purpose: Purpose, first: usize, to: &mut [f32]) -> Result<(), TensorError> {
        Ok(self.device().read(purpose, self.handle(), first, to)?)
    }

    /// Replaces every number by one, on the device itself.
    ///
    /// # Errors
    /// Where the device failed.
    pub fn fill(&self, value: f32) -> Result<(), TensorError> {
        Ok(self.device().place().fill(self.handle(), value)?)
    }

    /// Replaces its numbers by the host's.
    ///
    /// # Errors
    /// Where there are more or fewer, or the device failed.
    pub fn write(&self, values: &[f32]) -> Result<(), TensorError> {
        if values.len() != self.len() {
            return Err(TensorError::Values { shape: self.shape.clone(), found: values.len() });
        }
        Ok(self.device().write(Purpose::Tensor, self.handle(), values)?)
    }

    /// As the textbook prints it: values, shape, type, device. The values are copied to the host to be seen.
    ///
    /// # Errors
    /// Where the device failed.
    pub fn show(&self) -> Result<String, TensorError> {
        let mut values = vec![0.0; self.len()];
        self.read(Purpose::Log, 0, &mut values)?;
        Ok(show::show(&values, &self.shape, self.dtype, self.device().name()))
    }

    /// The tensor on that device. Where it is there already, it is this same tensor, and nothing is moved.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn copy(&self, device: &Device) -> Result<Self, TensorError> {
        if self.device() == device {
            device.count_nothing(Purpose::Tensor);
            return Ok(self.clone());
        }
        self.copy_anyway(device)
    }

    /// A tensor of its own memory on that device, even where this one is there already.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn copy_anyway(&self, device: &Device) -> Result<Self, TensorError> {
        let copy = Self { name: self.name.clone(), ..Self::empty(device, self.shape.axes())? };
        copy.copy_numbers(self, Purpose::Tensor)?;
        Ok(copy)
    }

    /// Takes over the numbers of a tensor of the same shape, wherever that lives.
    ///
    /// # Errors
    /// Where the shapes differ, or a device failed.
    pub fn copy_numbers(&self, from: &Self, purpose: Purpose) -> Result<(), TensorError> {
        self.fits(from, self.shape == from.shape, "copied", "the shapes must be equal")?;
        Ok(self.device().copy_from(purpose, self.handle(), from.device(), from.handle())?)
    }

    /// The sum, elementwise.
    ///
    /// # Errors
    /// Where devices or shapes differ.
    pub fn add(&self, other: &Self) -> Result<Self, TensorError> {
        self.meets(other)?;
        self.fits(other, self.shape == other.shape, "added", "the shapes must be equal")?;
        let sum = Self::empty(self.device(), self.shape.axes())?;
        self.device().place().add(self.handle(), other.handle(), sum.handle())?;
        Ok(sum)
    }

    /// The matrix product of `[m, k]` and `[k, n]`.
    ///
    /// # Errors
    /// Where devices differ or shapes do not fit.
    pub fn matmul(&self, other: &Self) -> Result<Self, TensorError> {
        self.meets(other)?;
        let [m, _, n] = self.product_shape(other)?;
        let product = Self::empty(self.device(), &[m, n])?;
        self.matmul_into(other, &product)?;
        Ok(product)
    }

    /// The same into memory that is there.
    ///
    /// # Errors
    /// As [`Tensor::matmul`], or where the result is of another shape or device.
    pub fn matmul_into(&self, other: &Self, product: &Self) -> Result<(), TensorError> {
        self.meets(other)?;
        self.meets(product)?;
        let [m, k, n] = self.product_shape(other)?;
        self.fits(product, product.shape.axes() == [m, n], "multiplied", "the result must be [m, n]")?;
        self.device().place().product(self.handle(), other.handle(), product.handle(), [m, k, n])?;
        Ok(())
    }

    /// One figure of all its numbers, as a tensor of one number on the same device.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn reduce(&self, reduction: Reduction) -> Result<Self, TensorError> {
        let cell = Self::empty(self.device(), &[])?;
        self.reduce_into(reduction, &cell, 0)?;
        Ok(cell)
    }

    /// The same into a number of a tensor that is there.
    ///
    /// # Errors
    /// Where that lives elsewhere or is shorter.
    pub fn reduce_into(&self, reduction: Reduction, to: &Self, at: usize) -> Result<(), TensorError> {
        self.meets(to)?;
        Ok(self.device().place().reduce(reduction, self.handle(), to.handle(), at)?)
    }

    pub(super) fn handle(&self) -> Handle {
        self.memory.handle
    }

    pub(super) fn name_or(&self, other: &str) -> String {
        self.name.as_deref().unwrap_or(other).to_owned()
    }

    /// Nothing is copied behind the user's back.
    pub(super) fn meets(&self, other: &Self) -> Result<(), TensorError> {
        if self.device() == other.device() {
            return Ok(());
        }
        Err(TensorError::DeviceMismatch {
            left: self.name_or("a"),
            left_device: self.device().name().to_owned(),
            right: other.name_or("b"),
            right_device: other.device().name().to_owned(),
        })
    }

    pub(super) fn fits(
        &self,
        other: &Self,
        fits: bool,
        verb: &'static str,
        rule: &'static str,
    ) -> Result<(), TensorError> {
        if fits {
            return Ok(());
        }
        Err(TensorError::ShapeMismatch {
            left: self.name_or("a"),
            left_shape: self.shape.clone(),
            right: other.name_or("b"),
            right_shape: other.shape.clone(),
            verb,
            rule,
        })
    }

    fn product_shape(&self, other: &Self) -> Result<[usize; 3], TensorError> {
        let shape = match (self.shape.axes(), other.shape.axes()) {
            ([m, k], [l, n]) if k == l => Some([*m, *k, *n]),
            _ => None,
        };
        self.fits(other, shape.is_some(), "multiplied", "they must be [m, k] and [k, n]")?;
        Ok(shape.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Devices;

    /// Every line of the traffic but its times.
    fn lines(devices: &Devices) -> Vec<String> {
        let line = |(kind, purpose, route, line): (
            crate::device::Kind,
            Purpose,
            crate::device::Route,
            crate::device::Line,
        )| {
            let (kind, purpose) = (kind.name(), purpose.name());
            format!(
                "{kind} {purpose} {}>{} {} {} {}",
                route.from, route.to, line.count, line.noop_count, line.bytes
            )
        };
        devices.traffic().lines().into_iter().map(line).collect()
    }

    #[test]
    fn every_copy_is_counted_and_a_needless_one_moves_nothing() {
        let devices = Devices::with_virtual_gpus(2);
        let get = |name| devices.get(name).expect("it is there");
        let (cpu, first, second) = (get("cpu"), get("virtual:0"), get("virtual:1"));
        let x = Tensor::from_values(cpu, &[2, 3], &[1.0; 6]).expect("room");
        let y = x.copy(first).expect("room");
        let again = y.copy(first).expect("it is there");
        assert!(again.is(&y) && !y.copy_anyway(first).expect("room").is(&y));
        let z = y.copy(second).expect("room");
        assert_eq!(z.copy(cpu).expect("room").values().expect("numbers"), [1.0; 6]);
        assert_eq!(z.add(&z).expect("a sum").values().expect("numbers"), [2.0; 6]);
        first.synchronize(Purpose::Tensor).expect("no fault");
        cpu.synchronize(Purpose::Tensor).expect("no fault");
        assert_eq!(
            lines(&devices),
            [
                "h2d tensor cpu>cpu 0 1 0",
                "h2d tensor cpu>virtual:0 1 0 24",
                "d2h tensor cpu>cpu 0 1 0",
                "d2h tensor virtual:1>cpu 2 0 48",
                "d2d tensor virtual:0>virtual:0 1 1 24",
                "d2d tensor virtual:0>virtual:1 1 0 24",
                "sync tensor virtual:0>cpu 1 0 0",
            ]
        );
        assert_eq!((first.peak_bytes(), second.peak_bytes()), (48, 48));
    }

    #[test]
    fn what_does_not_fit_is_refused_in_full() {
        let devices = Devices::with_virtual_gpus(2);
        let (first, second) =
            (devices.get("virtual:0").expect("there"), devices.get("virtual:1").expect("there"));
        let x = Tensor::ones(first, &[2, 3]).expect("room").named("X");
        let z = Tensor::ones(second, &[2, 3]).expect("room").named("Z");
        let words = |result: Result<Tensor, TensorError>| result.expect_err("a refusal").to_string();
        let mismatch = "`X` is on virtual:0 and `Z` on virtual:1; copy one: `Y = X.copy(virtual:1)`";
        assert_eq!(words(x.add(&z)), mismatch);
        assert_eq!(words(x.matmul(&z)), mismatch);
        let unnamed = Tensor::ones(first, &[3]).expect("room");
        assert_eq!(
            words(x.add(&unnamed)),
            "`X` of shape [2, 3] and `b` of shape [3] cannot be added: the shapes must be equal"
        );
        assert_eq!(
            words(x.matmul(&x)),
            "`X` of shape [2, 3] and `X` of shape [2, 3] cannot be multiplied: they must be [m, k] and [k, n]"
        );
        assert_eq!(
            words(Tensor::from_values(first, &[2], &[1.0])),
            "a tensor of shape [2] has 2 numbers, and 1 were given"
        );
        assert_eq!(
            devices.get("gpu:0").expect_err("no such").to_string(),
            "`gpu:0` is not there; there is `cpu`, `virtual:0`, `virtual:1`"
        );
    }

    #[test]
    fn random_numbers_are_the_same_everywhere_and_norms_agree() {
        let devices = Devices::with_virtual_gpus(1);
        let numbers = |name, seed, index| {
            let tensor =
                Tensor::rand(devices.get(name).expect("there"), &[40, 50], seed, index).expect("room");
            let norm = tensor.reduce(Reduction::Frobenius).and_then(|n| n.values()).expect("a norm")[0];
            let values = tensor.values().expect("numbers");
            let exact = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
            assert!((f64::from(norm) / exact - 1.0).abs() < 1e-6);
            assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
            values
        };
        assert_eq!(numbers("cpu", 3, 0), numbers("virtual:0", 3, 0));
        assert_ne!(numbers("cpu", 3, 0), numbers("cpu", 3, 1));
        assert_ne!(numbers("cpu", 3, 0), numbers("cpu", 4, 0));
    }
}

//! Operations on tensors: copy, add, multiply, reduce; and their checks.

use super::{Device, Tensor, TensorError};
use crate::device::{Purpose, backend::Reduction};

impl Tensor {
    /// The tensor on `device`. If it is there already, returns this tensor and moves nothing.
    pub fn copy(&self, device: &Device) -> Result<Self, TensorError> {
        if self.device() == device {
            device.count_nothing(Purpose::Tensor);
            return Ok(self.clone());
        }
        self.copy_anyway(device)
    }

    /// A copy with its own memory on `device`, even if this tensor is there already.
    pub fn copy_anyway(&self, device: &Device) -> Result<Self, TensorError> {
        let mut copy = Self::empty(device, self.shape.axes())?;
        copy.name.clone_from(&self.name);
        copy.copy_numbers(self, Purpose::Tensor)?;
        Ok(copy)
    }

    /// Copies the elements of a tensor of equal shape on any device.
    ///
    /// # Errors
    /// Shapes differ, or a device failed.
    pub fn copy_numbers(&self, from: &Self, purpose: Purpose) -> Result<(), TensorError> {
        self.fits(from, self.shape == from.shape, "copied", "the shapes must be equal")?;
        Ok(self.device().copy_from(purpose, self.handle(), from.device(), from.handle())?)
    }

    /// The elementwise sum.
    ///
    /// # Errors
    /// Devices or shapes differ.
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
    /// Devices differ or shapes do not match.
    pub fn matmul(&self, other: &Self) -> Result<Self, TensorError> {
        self.meets(other)?;
        let [m, _, n] = self.product_shape(other)?;
        let product = Self::empty(self.device(), &[m, n])?;
        self.matmul_into(other, &product)?;
        Ok(product)
    }

    /// [`Tensor::matmul`] into existing memory.
    pub fn matmul_into(&self, other: &Self, product: &Self) -> Result<(), TensorError> {
        self.meets(other)?;
        self.meets(product)?;
        let [m, k, n] = self.product_shape(other)?;
        self.fits(product, product.shape.axes() == [m, n], "multiplied", "the result must be [m, n]")?;
        self.device().place().product(self.handle(), other.handle(), product.handle(), [m, k, n])?;
        Ok(())
    }

    /// A reduction over all elements, as a tensor of one element on this device.
    pub fn reduce(&self, reduction: Reduction) -> Result<Self, TensorError> {
        let cell = Self::empty(self.device(), &[])?;
        self.reduce_into(reduction, &cell, 0)?;
        Ok(cell)
    }

    /// A reduction into one element of an existing tensor.
    ///
    /// # Errors
    /// That tensor is on another device or too short.
    pub fn reduce_into(&self, reduction: Reduction, to: &Self, at: usize) -> Result<(), TensorError> {
        self.meets(to)?;
        Ok(self.device().place().reduce(reduction, self.handle(), to.handle(), at)?)
    }

    /// No implicit copies.
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

    /// The traffic without times.
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

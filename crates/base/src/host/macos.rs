//! What macOS tells of itself by calls, where Linux has files under `/proc` and `/sys`. Other systems tell nothing here.

use std::ffi::CStr;

/// A number by its name in sysctl(3).
pub fn number(name: &CStr) -> Option<u64> {
    let mut bytes = [0; 8];
    match value(name, &mut bytes)? {
        4 => Some(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into()),
        8 => Some(u64::from_ne_bytes(bytes)),
        _ => None,
    }
}

/// A text by its name in sysctl(3).
pub fn text(name: &CStr) -> Option<String> {
    let mut bytes = [0; 256];
    let length = value(name, &mut bytes)?;
    let text = CStr::from_bytes_until_nul(bytes.get(..length)?).ok()?;
    Some(text.to_str().ok()?.to_owned())
}

/// Reads a value; returns its length.
#[cfg(target_os = "macos")]
fn value(name: &CStr, into: &mut [u8]) -> Option<usize> {
    let mut length = into.len();
    // SAFETY: the name ends with a zero, and no more bytes are written than `length` says.
    let status = unsafe {
        libc::sysctlbyname(name.as_ptr(), into.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut(), 0)
    };
    (status == 0).then_some(length)
}

#[cfg(not(target_os = "macos"))]
fn value(_: &CStr, _: &mut [u8]) -> Option<usize> {
    None
}

/// The most bytes of memory that this process has occupied.
#[cfg(target_os = "macos")]
pub fn peak_resident_bytes() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a struct of the type that getrusage(2) fills, for which all-zero bytes are
    // valid.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) != 0 {
            return None;
        }
        usage.assume_init()
    };
    u64::try_from(usage.ru_maxrss).ok() // in bytes, unlike that of Linux
}

#[cfg(not(target_os = "macos"))]
pub fn peak_resident_bytes() -> Option<u64> {
    None
}

//! Compiles the kernels with NVIDIA's run-time compiler: they compile, and no registers spill.
//!
//! Needs the library but no GPU: RUNNER_NVRTC is its path (`scripts/nvrtc-wheels` installs two versions). A
//! process can load only one, and each version compiles for a part of the architectures: all of them take a minute.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    path::Path,
    process::Command,
    ptr::null,
    thread,
};

use libloading::Library;

#[path = "../../../kernels/sources.rs"]
pub mod sources;

/// Set when the test has a process of its own.
const ALONE: &str = "RUNNER_TEST_ALONE";

/// Architectures of all kernels, and the version of CUDA whose compiler is tried; those that it does not know are skipped.
const KERNELS: [(i32, i32); 4] = [(80, 12), (90, 12), (75, 13), (100, 13)];

/// Those of compiled steps.
const STEPS: [(i32, i32); 3] = [(90, 12), (75, 13), (80, 13)];

type Status = i32;

/// The library, and the builtins that some of its versions do not find by themselves.
pub struct Compiler {
    library: Library,
    _builtins: Vec<Library>,
}

impl Compiler {
    pub fn open(path: &Path) -> Self {
        let folder = path.parent().unwrap();
        let mut builtins = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so") {
                // SAFETY: NVIDIA's library; its initialization has no precondition.
                builtins.push(unsafe { Library::new(entry.path()) }.unwrap());
            }
        }
        // SAFETY: as above.
        Self { library: unsafe { Library::new(path) }.unwrap(), _builtins: builtins }
    }

    fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: each caller names the type that NVRTC's documentation gives this function.
        *unsafe { self.library.get::<T>(name.as_bytes()) }.unwrap()
    }

    /// The version of CUDA, 12 or 13: older and newer compilers count as the nearest.
    fn version(&self) -> i32 {
        let (mut major, mut minor) = (0, 0);
        type Version = unsafe extern "C" fn(*mut i32, *mut i32) -> Status;
        // SAFETY: the pointers are to live variables.
        assert_eq!(unsafe { self.function::<Version>("nvrtcVersion")(&mut major, &mut minor) }, 0);
        major.clamp(12, 13)
    }

    fn architectures(&self) -> Vec<i32> {
        let mut count = 0;
        type Count = unsafe extern "C" fn(*mut i32) -> Status;
        // SAFETY: the pointers are to live variables, the second to as many elements as the library reported.
        unsafe {
            assert_eq!(self.function::<Count>("nvrtcGetNumSupportedArchs")(&mut count), 0);
            let mut all = vec![0; count as usize];
            assert_eq!(self.function::<Count>("nvrtcGetSupportedArchs")(all.as_mut_ptr()), 0);
            all
        }
    }

    /// A cubin and the compiler's log.
    pub fn compile(&self, source: &str, architecture: i32) -> Result<(Vec<u8>, String), String> {
        type Create = unsafe extern "C" fn(
            *mut *mut c_void,
            *const c_char,
            *const c_char,
            i32,
            *const c_void,
            *const c_void,
        ) -> Status;
        type Compile = unsafe extern "C" fn(*mut c_void, i32, *const *const c_char) -> Status;
        type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> Status;
        type Text = unsafe extern "C" fn(*mut c_void, *mut c_char) -> Status;
        type Destroy = unsafe extern "C" fn(*mut *mut c_void) -> Status;
        let source = CString::new(source).unwrap();
        let architecture = CString::new(format!("--gpu-architecture=sm_{architecture}")).unwrap();
        let options = [architecture.as_ptr(), c"--std=c++17".as_ptr(), c"--ptxas-options=-v".as_ptr()];
        let mut program = std::ptr::null_mut();
        // SAFETY: all strings end in NUL and live through the calls; the log has as much room as the library
        // asked for.
        unsafe {
            let create = self.function::<Create>("nvrtcCreateProgram");
            let name = c"kernels.cu".as_ptr();
            assert_eq!(create(&mut program, source.as_ptr(), name, 0, null(), null()), 0);
            let status = self.function::<Compile>("nvrtcCompileProgram")(program, 3, options.as_ptr());
            let mut size = 0;
            assert_eq!(self.function::<Size>("nvrtcGetProgramLogSize")(program, &mut size), 0);
            let mut log: Vec<c_char> = vec![0; size.max(1)];
            assert_eq!(self.function::<Text>("nvrtcGetProgramLog")(program, log.as_mut_ptr()), 0);
            let log = CStr::from_ptr(log.as_ptr()).to_string_lossy().into_owned();
            let mut size = 0;
            let got = self.function::<Size>("nvrtcGetCUBINSize")(program, &mut size);
            let mut code = vec![0u8; size];
            let got = got | self.function::<Text>("nvrtcGetCUBIN")(program, code.as_mut_ptr().cast());
            self.function::<Destroy>("nvrtcDestroyProgram")(&mut program);
            if status == 0 && got == 0 { Ok((code, log)) } else { Err(log) }
        }
    }
}

#[test]
fn every_kernel_compiles_without_a_spill() {
    let Some(path) = std::env::var_os("RUNNER_NVRTC") else {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI must name NVRTC in RUNNER_NVRTC (scripts/nvrtc-wheels)"
        );
        println!("skipped: RUNNER_NVRTC does not name NVIDIA's run-time compiler (scripts/nvrtc-wheels)");
        return;
    };
    // In a process of its own, because NVIDIA's library conflicts with the simulated one that other tests
    // load.
    if std::env::var_os(ALONE).is_none() {
        let mut own = Command::new(std::env::current_exe().unwrap());
        own.args(["--exact", "kernels::compile::every_kernel_compiles_without_a_spill", "--nocapture"]);
        let output = own.env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        println!("{text}");
        return;
    }
    let compiler = Compiler::open(Path::new(&path));
    let (known, version) = (compiler.architectures(), compiler.version());
    let of = |all: &[(i32, i32)]| -> Vec<i32> {
        let own = all.iter().filter(|(own, by)| *by == version && known.contains(own));
        own.map(|(own, _)| *own).collect()
    };
    thread::scope(|scope| {
        scope.spawn(|| of(&KERNELS).into_iter().for_each(|own| all_kernels(&compiler, own)));
        of(&STEPS).into_iter().for_each(|own| steps(&compiler, own));
    });
    assert!(compiler.compile("extern \"C\" __global__ void f() { no }", 80).unwrap_err().contains("error"));
}

fn all_kernels(compiler: &Compiler, architecture: i32) {
    let source = sources::joined();
    let (code, log) = compiler
        .compile(&source, architecture)
        .unwrap_or_else(|log| panic!("sm_{architecture} does not compile:\n{log}"));
    assert!(!code.is_empty());
    let entries = log.lines().filter(|line| line.contains("Compiling entry function")).count();
    let kernels = source.matches("extern \"C\" __global__").count();
    assert_eq!(entries, kernels, "sm_{architecture}: the log tells of other kernels:\n{log}");
    for line in log.lines().filter(|line| line.contains("spill stores")) {
        assert!(line.contains(" 0 bytes spill stores, 0 bytes spill loads"), "sm_{architecture}: {line}");
    }
}

fn steps(compiler: &Compiler, architecture: i32) {
    let functions = sources::with_kernels(|_| false);
    for (name, step) in super::grid::steps(architecture >= 80) {
        let (_, log) = compiler
            .compile(&(functions.clone() + &step), architecture)
            .unwrap_or_else(|log| panic!("{name} for sm_{architecture} does not compile:\n{log}\n{step}"));
        let spills: Vec<&str> = log.lines().filter(|line| line.contains("spill stores")).collect();
        assert_eq!(spills.len(), 1, "{log}");
        assert!(
            spills[0].contains(" 0 bytes spill stores, 0 bytes spill loads"),
            "{name}, sm_{architecture}: {log}\n{step}"
        );
        let registers = log.lines().find_map(|line| line.trim().strip_prefix("ptxas info    : Used"));
        println!("{name}, sm_{architecture}: used{}", registers.unwrap_or_default());
    }
}

#[test]
fn parts_of_the_kernels_hold_what_they_name() {
    let kernels = |text: &str| text.matches("extern \"C\" __global__").count();
    let (all, none) = (sources::joined(), sources::with_kernels(|_| false));
    assert_eq!(sources::with_kernels(|_| true), all);
    assert_eq!(kernels(&none), 0);
    assert_eq!(none.lines().count(), all.lines().count(), "the compiler's messages name lines");
    for name in ["interpret", "interpret_grid", "peer_sum", "op_gather"] {
        let alone = sources::with_kernels(|other| other == name);
        assert_eq!(kernels(&alone), 1);
        assert!(alone.contains(&format!(" {name}(")), "{name}");
    }
}

//! NVRTC, the run-time compiler: CUDA C++ to machine code (a cubin) for one architecture.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    path::PathBuf,
    ptr,
};

use super::library::{self, functions};

functions! {
    /// `libnvrtc.so`.
    Functions {
        fn nvrtcVersion(*mut i32, *mut i32);
        fn nvrtcGetNumSupportedArchs(*mut i32);
        fn nvrtcGetSupportedArchs(*mut i32);
        fn nvrtcCreateProgram(
            *mut *mut c_void, *const c_char, *const c_char, i32, *const *const c_char, *const *const c_char,
        );
        fn nvrtcCompileProgram(*mut c_void, i32, *const *const c_char);
        fn nvrtcGetProgramLogSize(*mut c_void, *mut usize);
        fn nvrtcGetProgramLog(*mut c_void, *mut c_char);
        fn nvrtcGetCUBINSize(*mut c_void, *mut usize);
        fn nvrtcGetCUBIN(*mut c_void, *mut c_char);
        fn nvrtcDestroyProgram(*mut *mut c_void);
    }
}

/// How to get the library, for a driver that supports CUDA `major`.
pub fn way_out(major: i32) -> String {
    let package = if major >= 13 { "nvidia-cuda-nvrtc" } else { "nvidia-cuda-nvrtc-cu12" };
    format!(
        "`pip install {package}` in an active virtual environment, or install the CUDA toolkit, or name its folder in \
         ${}",
        library::PATH_VARIABLE
    )
}

pub struct Compiler {
    functions: Functions,
    pub version: (i32, i32),
    pub path: Option<PathBuf>,
}

impl Compiler {
    /// Opens a compiler whose code a driver for CUDA `major` accepts, and which knows the architecture (such as `90`).
    ///
    /// # Errors
    /// One sentence on what was searched for and where, and how to get it.
    pub fn open(major: i32, architecture: i32) -> Result<Self, String> {
        // Code of a newer major version than the driver's may fail to load.
        let names = if major >= 13 { &["libnvrtc.so.13", "libnvrtc.so.12"][..] } else { &["libnvrtc.so.12"] };
        let found = library::find(names, Some("libnvrtc-builtins.so"), |opened| {
            let functions =
                Functions::from_library(opened.library).map_err(|name| format!("has no function {name}"))?;
            let mut compiler = Self { functions, version: (0, 0), path: opened.path };
            compiler.learn(architecture)?;
            Ok(compiler)
        });
        found.map_err(|missing| {
            format!("NVRTC, the CUDA run-time compiler, is not there: {missing}; {}", way_out(major))
        })
    }

    fn learn(&mut self, architecture: i32) -> Result<(), String> {
        let f = &self.functions;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: pointers to live locals.
        let status = unsafe { (f.nvrtcVersion)(&raw mut major, &raw mut minor) };
        // SAFETY: as above.
        let counted = unsafe { (f.nvrtcGetNumSupportedArchs)(&raw mut count) };
        if status != 0 || counted != 0 {
            return Err("does not tell its version".into());
        }
        let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for the number of elements just returned.
        let status = unsafe { (f.nvrtcGetSupportedArchs)(all.as_mut_ptr()) };
        if status != 0 || !all.contains(&architecture) {
            return Err(format!("({major}.{minor}) does not know the architecture sm_{architecture}"));
        }
        self.version = (major, minor);
        Ok(())
    }

    /// Compiles one source.
    ///
    /// # Errors
    /// The compiler's log, which names lines.
    pub fn cubin(&self, name: &str, source: &str, options: &[String]) -> Result<Vec<u8>, String> {
        let text = |s: &str| CString::new(s).map_err(|_| format!("`{name}` holds a zero byte"));
        let (source, file) = (text(source)?, text(name)?);
        let options = options.iter().map(|o| text(o)).collect::<Result<Vec<_>, _>>()?;
        let program = Program::new(&self.functions, &source, &file)?;
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: the program is alive, and so are the strings.
        let status = unsafe {
            (self.functions.nvrtcCompileProgram)(program.handle, pointers.len() as i32, pointers.as_ptr())
        };
        if status != 0 {
            return Err(format!("NVRTC cannot compile `{name}` (status {status}): {}", program.log().trim()));
        }
        program.code().ok_or_else(|| format!("NVRTC gives no code for `{name}`"))
    }
}

struct Program<'a> {
    functions: &'a Functions,
    handle: *mut c_void,
}

impl<'a> Program<'a> {
    fn new(functions: &'a Functions, source: &CStr, name: &CStr) -> Result<Self, String> {
        let mut handle = ptr::null_mut();
        // SAFETY: the strings outlive the program (`cubin` owns them longer); there are no headers.
        let status = unsafe {
            (functions.nvrtcCreateProgram)(
                &raw mut handle,
                source.as_ptr(),
                name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        if status == 0 {
            Ok(Self { functions, handle })
        } else {
            Err(format!("NVRTC does not start (status {status})"))
        }
    }

    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the program is alive, the pointer to a live local.
        if unsafe { (self.functions.nvrtcGetProgramLogSize)(self.handle, &raw mut size) } != 0 {
            return String::new();
        }
        let mut bytes = vec![0u8; size];
        // SAFETY: there is room for the number of bytes just returned.
        unsafe { (self.functions.nvrtcGetProgramLog)(self.handle, bytes.as_mut_ptr().cast()) };
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
    }

    fn code(&self) -> Option<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program is alive, the pointer to a live local.
        if unsafe { (self.functions.nvrtcGetCUBINSize)(self.handle, &raw mut size) } != 0 {
            return None;
        }
        let mut bytes = vec![0u8; size];
        // SAFETY: there is room for the number of bytes just returned.
        let status = unsafe { (self.functions.nvrtcGetCUBIN)(self.handle, bytes.as_mut_ptr().cast()) };
        (status == 0).then_some(bytes)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `nvrtcCreateProgram`, destroyed once.
        unsafe { (self.functions.nvrtcDestroyProgram)(&raw mut self.handle) };
    }
}

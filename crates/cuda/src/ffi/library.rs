//! Shared libraries that are opened at run time. Each is a table of functions, which are looked up when the
//! library is opened. A missing library or function is an error value.
//!
//! cudarc provides the types and constants of NVIDIA's libraries. Its loader is not used: it panics if a
//! library or function is missing, it searches for `libx.so` before `libx.so.12` (so a system file may win
//! over one that the user has chosen), and it turns an unknown status into an invalid enum value.

use std::{
    env,
    ffi::c_void,
    fmt, fs,
    path::{Path, PathBuf},
    ptr::NonNull,
};

use libloading::Library;

use crate::host::variable;

/// Folders given by the user, searched first.
pub const PATH_VARIABLE: &str = "RUNNER_CUDA_PATH";

/// Declares a library's table of functions; all return a status, with 0 for success.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $(fn $name:ident($($argument:ty),* $(,)?);)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "functions bear their own names")]
        pub struct $table {
            $(
                pub $name: unsafe extern "C" fn($($argument),*) -> i32,
            )*
            /// Never unloaded, since graphs and threads of the library may outlive its last user.
            _library: std::mem::ManuallyDrop<libloading::Library>,
        }

        impl $table {
            /// Looks up every function; the error is the name of one that is missing.
            pub fn from_library(library: libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $(
                        $name: {
                            let found = $crate::ffi::library::address(&library, stringify!($name))?;
                            // SAFETY: the signature is that of the library's header; the pointer lives as
                            // long as the library, which the table owns.
                            unsafe {
                                std::mem::transmute::<
                                    $crate::ffi::library::Address,
                                    unsafe extern "C" fn($($argument),*) -> i32,
                                >(found)
                            }
                        },
                    )*
                    _library: std::mem::ManuallyDrop::new(library),
                })
            }
        }
    };
}
pub(crate) use functions;

pub type Address = NonNull<c_void>;

/// Where a function is, or the name of one that is missing. The same for all signatures: a look-up for each of them would take
/// long to compile.
pub fn address<'a>(library: &Library, name: &'a str) -> Result<Address, &'a str> {
    // SAFETY: the address is only taken.
    let found = unsafe { library.get::<*mut c_void>(name.as_bytes()) };
    found.ok().and_then(|found| NonNull::new(*found)).ok_or(name)
}

pub struct Opened {
    pub library: Library,
    pub path: Option<PathBuf>,
}

/// What was searched for, where, and why it could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFound {
    names: Vec<String>,
    places: Vec<String>,
    /// Files that exist but could not be used, with reasons.
    pub faults: Vec<String>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "looked for {} in {}", self.names.join(", "), self.places.join(", "))?;
        self.faults.iter().try_for_each(|fault| write!(f, "; {fault}"))
    }
}

/// Opens the first library that `usable` accepts. Folders are searched in order, each for all names in order.
///
/// Files in the same folder whose names begin with `companion` are opened first, since the library would look
/// for them elsewhere.
pub fn find<T>(
    names: &[&str],
    companion: Option<&str>,
    mut usable: impl FnMut(Opened) -> Result<T, String>,
) -> Result<T, NotFound> {
    let mut missing =
        NotFound { names: names.iter().map(|n| (*n).to_owned()).collect(), places: vec![], faults: vec![] };
    for place in places() {
        missing.places.push(place.name);
        let files: Vec<PathBuf> = match &place.folders {
            None => names.iter().map(PathBuf::from).collect(),
            Some(folders) => folders
                .iter()
                .flat_map(|folder| names.iter().map(|name| folder.join(name)))
                .filter(|path| path.is_file())
                .collect(),
        };
        for file in files {
            if let (Some(companion), Some(folder)) = (companion, file.parent()) {
                open_companions(folder, companion);
            }
            // SAFETY: NVIDIA's libraries only initialize themselves when they are loaded.
            let library = match unsafe { Library::new(&file) } {
                Ok(library) => library,
                // A bare name may be absent; but if a file exists, report why it cannot be opened.
                Err(_) if place.folders.is_none() => continue,
                Err(error) => {
                    missing.faults.push(format!("{} does not open: {}", file.display(), reason(&error)));
                    continue;
                }
            };
            let path = place.folders.is_some().then(|| file.clone()).or_else(|| loaded_path(&file));
            let name = path.as_ref().unwrap_or(&file).display().to_string();
            match usable(Opened { library, path }) {
                Ok(table) => return Ok(table),
                Err(why) => missing.faults.push(format!("{name} {why}")),
            }
        }
    }
    Err(missing)
}

/// The loader's message without the file name.
fn reason(error: &libloading::Error) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    text.split_once(": ").map_or(text.clone(), |(_, rest)| rest.to_owned())
}

fn open_companions(folder: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            // SAFETY: as above. The handle is leaked, so that the library stays loaded.
            if let Ok(library) = unsafe { Library::new(entry.path()) } {
                std::mem::forget(library);
            }
        }
    }
}

/// The path of a library that the loader found by name.
fn loaded_path(name: &Path) -> Option<PathBuf> {
    let name = name.file_name()?.to_str()?;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).find(|path| {
        let file = Path::new(path).file_name().and_then(|f| f.to_str()).unwrap_or_default();
        // `libcuda.so.1` is a link to `libcuda.so.570.86.10`.
        let stem = name.split(".so").next().unwrap_or(name);
        file.split(".so").next() == Some(stem)
    })?;
    Some(PathBuf::from(path))
}

struct SearchPath {
    name: String,
    /// `None` stands for the loader's own search.
    folders: Option<Vec<PathBuf>>,
}

fn places() -> Vec<SearchPath> {
    let own = variable(PATH_VARIABLE);
    let own_folders = own.iter().flat_map(env::split_paths);
    let own_folders = own_folders.flat_map(|f| [f.join("lib64"), f.join("lib"), f]).collect();
    let word = |name: &str, there: bool| {
        if there { format!("${name}") } else { format!("${name} (not set)") }
    };
    let mut places = vec![
        SearchPath { name: word(PATH_VARIABLE, own.is_some()), folders: Some(own_folders) },
        SearchPath { name: "the loader's path".into(), folders: None },
    ];
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        let root = variable(name);
        let folders = root.iter().flat_map(|root| environment_folders(Path::new(root))).collect();
        places.push(SearchPath { name: word(name, root.is_some()), folders: Some(folders) });
    }
    let toolkit = PathBuf::from("/usr/local/cuda/lib64");
    places.push(SearchPath { name: toolkit.display().to_string(), folders: Some(vec![toolkit]) });
    places
}

/// Where the wheels of CUDA 12 (`nvidia/cuda_nvrtc/lib`) and of CUDA 13 (`nvidia/cu13/lib`) put their libraries.
fn environment_folders(root: &Path) -> Vec<PathBuf> {
    let entries = |folder: PathBuf| {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let mut folders = Vec::new();
    for python in entries(root.join("lib")) {
        let packages = entries(python.join("site-packages/nvidia"));
        folders.extend(packages.into_iter().map(|package| package.join("lib")).filter(|lib| lib.is_dir()));
    }
    folders.push(root.join("lib"));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_of_both_layouts_are_found() {
        let root = tempfile::tempdir().expect("a folder");
        let site = root.path().join("lib/python3.11/site-packages/nvidia");
        for folder in ["cuda_nvrtc/lib", "cu13/lib", "nccl/include"] {
            fs::create_dir_all(site.join(folder)).expect("a folder");
        }
        let found = environment_folders(root.path());
        assert_eq!(found, [site.join("cu13/lib"), site.join("cuda_nvrtc/lib"), root.path().join("lib")]);
    }

    #[test]
    fn what_is_not_there_is_told_with_all_places() {
        let Err(missing) = find(&["libno_such.so.7"], None, |_| Ok::<(), String>(())) else {
            panic!("there is such a library");
        };
        let text = missing.to_string();
        assert!(text.starts_with("looked for libno_such.so.7 in $RUNNER_CUDA_PATH"), "{text}");
        assert!(text.ends_with("/usr/local/cuda/lib64"), "{text}");
    }
}

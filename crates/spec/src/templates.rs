//! Commented starter specs for `runner new`.

/// A starter spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its name on the command line.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// The spec's text.
    pub text: &'static str,
}

/// All templates.
pub const TEMPLATES: [Template; 6] = [
    Template {
        name: "linreg",
        about: "linear regression on synthetic data, with known true weights",
        text: include_str!("templates/linreg.toml"),
    },
    Template {
        name: "classes",
        about: "classes of made rows, 784-256-10: what a machine takes for it, without any data",
        text: include_str!("templates/classes.toml"),
    },
    Template {
        name: "csv",
        about: "a table of numbers and categories",
        text: include_str!("templates/csv.toml"),
    },
    Template {
        name: "mlp",
        about: "images and labels in MNIST's format, classified by a multilayer perceptron",
        text: include_str!("templates/mlp.toml"),
    },
    Template { name: "npy", about: "NumPy arrays", text: include_str!("templates/npy.toml") },
    Template {
        name: "sweep",
        about: "one spec, many trials: the cost of logging policies",
        text: include_str!("templates/sweep.toml"),
    },
];

/// Finds a template by name.
pub fn find(name: &str) -> Option<Template> {
    TEMPLATES.into_iter().find(|t| t.name == name)
}

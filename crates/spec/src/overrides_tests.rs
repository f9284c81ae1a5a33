//! Overrides applied to small files.

use super::{
    overrides::apply,
    tree::{self, Value},
};

fn applied(file: &str, arguments: &[&str]) -> (String, Vec<String>) {
    let mut root = tree::parse_document(file, 0).unwrap();
    let arguments: Vec<String> = arguments.iter().map(|s| s.to_string()).collect();
    let (_, problems) = apply(&mut root, &arguments);
    (Value::Table(root).to_toml().to_string(), problems.into_iter().map(|p| p.message).collect())
}

#[test]
fn one_value_sets_and_ends_an_axis() {
    let file = "a = 1\nsweep = { grid = { a = [1, 2], b = [3] } }";
    assert_eq!(applied(file, &["a=5"]).0, "{ a = 5, sweep = { grid = { b = [3] } } }");
    assert_eq!(applied(file, &["a=5,6"]).0, "{ a = 1, sweep = { grid = { a = [5, 6], b = [3] } } }");
    assert_eq!(applied(file, &["~a"]).0, "{ sweep = { grid = { b = [3] } } }");
    for key in ["a.b", "sweep.grid.a.b", "sweep.grid.\"a.b\""] {
        assert_eq!(applied("", &[&format!("{key}=x,2")]).0, r#"{ sweep = { grid = { "a.b" = ["x", 2] } } }"#);
    }
    assert_eq!(applied("", &["a.b=x,2"]).0, r#"{ sweep = { grid = { "a.b" = ["x", 2] } } }"#);
}

/// Of keys that exclude each other: what an argument sets or sweeps as a whole replaces the file's, also its axes.
#[test]
fn an_alternative_takes_the_place_of_the_files() {
    let file = "checkpoint = { every_minutes = 1.0, keep_last = 2 }\noptimizer = { sgd = { lr = 1 } }";
    let rest = "optimizer = { sgd = { lr = 1 } }";
    let words: [(&[&str], &str); 4] = [
        (&["checkpoint.every_epochs=3"], ""),
        (&["~checkpoint.every_minutes", "checkpoint.every_epochs=3"], ""),
        (&["checkpoint.every_epochs=3", "~checkpoint.every_minutes"], ""),
        (&["checkpoint.every_minutes=2", "checkpoint.every_epochs=3"], "every_minutes = 2, "),
    ];
    for (words, more) in words {
        let (spec, problems) = applied(file, words);
        let own = format!("{{ checkpoint = {{ {more}keep_last = 2, every_epochs = 3 }}, {rest} }}");
        assert_eq!((spec, problems), (own, vec![]));
    }
    let swept = "{ checkpoint = { keep_last = 2 }, optimizer = { sgd = { lr = 1 } }, sweep = { grid = { \
                 \"checkpoint.every_steps\" = [5, 9] } } }";
    assert_eq!(applied(file, &["checkpoint.every_steps=5,9"]).0, swept);
    let file = "devices.use = ['cpu']\nsweep.grid = { \"devices.use\" = [['cpu'], ['gpu']], seed = [1, 2] }";
    let one = "{ devices = { num_gpus = 1 }, sweep = { grid = { seed = [1, 2] } } }";
    assert_eq!(applied(file, &["devices.num_gpus=1"]).0, one);
    assert_eq!(
        applied("a.every_epochs = 1", &["a.every_steps=2"]).0,
        "{ a = { every_epochs = 1, every_steps = 2 } }"
    );
    let file = "optimizer.sgd.lr = 1\nsweep.grid = { \"optimizer.sgd.lr\" = [1, 2], seed = [1, 2] }";
    let one = "{ optimizer = { adam = { lr = 2 } }, sweep = { grid = { seed = [1, 2] } } }";
    assert_eq!(applied(file, &["optimizer.adam={lr=2}"]).0, one);
    let both = applied(file, &["optimizer.adam={lr=2}", "optimizer.sgd.lr=3,4"]).0;
    assert!(both.starts_with("{ optimizer = { sgd = { lr = 1 }, adam = { lr = 2 } }, "), "{both}");
    let tables = applied("optimizer.sgd.lr = 1", &["optimizer.adam.lr=2"]).0;
    assert_eq!(tables, "{ optimizer = { sgd = { lr = 1 }, adam = { lr = 2 } } }");
}

#[test]
fn values_are_toml_or_plain_strings() {
    assert_eq!(applied("", &["a=off"]).0, r#"{ a = "off" }"#);
    assert_eq!(applied("", &["a=\"b, c\""]).0, r#"{ a = "b, c" }"#);
    assert_eq!(applied("", &["a={ b = [1, 2] }"]).0, "{ a = { b = [1, 2] } }");
    assert_eq!(applied("", &["a="]).0, r#"{ a = "" }"#);
    assert_eq!(applied("", &["a=2020-01-01"]).0, r#"{ a = "2020-01-01" }"#);
    assert_eq!(applied("a = ['x', 'y']", &["a.1=z"]).0, r#"{ a = ["x", "z"] }"#);
    for (number, want) in [
        (".1", "0.1"),
        ("1.", "1.0"),
        ("-.5", "-0.5"),
        ("+2.e-3", "0.002"),
        ("1e-3", "0.001"),
        ("[.5, 1]", "[0.5, 1]"),
        (".", "\".\""),
        ("1.2.", "\"1.2.\""),
        (".e3", "\".e3\""),
        ("007", "\"007\""),
    ] {
        assert_eq!(applied("", &[&format!("a={number}")]).0, format!("{{ a = {want} }}"), "{number}");
    }
    for (list, want) in [
        ("[x, y-1]", r#"["x", "y-1"]"#),
        ("[x]", r#"["x"]"#),
        (r#"[x, "y, z", 'w', 1]"#, r#"["x", "y, z", "w", 1]"#),
        ("[[x, 1], [y], { b = 'z' }]", r#"[["x", 1], ["y"], { b = "z" }]"#),
        ("[x,,y]", r#""[x,,y]""#),
        ("{sgd={lr=.1}}", "{ sgd = { lr = 0.1 } }"),
        ("{ b.c = [1., x], d = -.5 }", r#"{ b = { c = [1.0, "x"] }, d = -0.5 }"#),
        ("{b=.1,b=2}", r#""{b=.1,b=2}""#),
        ("{b=.1,}", r#""{b=.1,}""#),
        ("{.1}", r#""{.1}""#),
        ("[x", r#""[x""#),
    ] {
        assert_eq!(applied("", &[&format!("a={list}")]).0, format!("{{ a = {want} }}"), "{list}");
    }
    let swept = applied("", &["a=[x],[y, 2]"]).0;
    assert_eq!(swept, r#"{ sweep = { grid = { a = [["x"], ["y", 2]] } } }"#);
}

#[test]
fn indexes_mean_the_spec_as_it_is_written() {
    let file = "l = ['a', 'b', 'c', { d = 1 }]";
    for (arguments, want) in [
        (&["~l.1", "~l.2"][..], r#"{ l = ["a", { d = 1 }] }"#),
        (&["~l.2", "~l.1"], r#"{ l = ["a", { d = 1 }] }"#),
        (&["~l.0", "l.3.d=2", "l.1=B"], r#"{ l = ["B", "c", { d = 2 }] }"#),
        // A deleted key may be set again; a list that is set again starts from its new items.
        (&["~l.1", "l.1=x"], r#"{ l = ["a", "x", "c", { d = 1 }] }"#),
        (&["~l.1", "l=[1, 2]", "~l.1"], "{ l = [1] }"),
        (&["l=[1, 2]", "l.0=3"], "{ l = [3, 2] }"),
    ] {
        assert_eq!(applied(file, arguments), (want.to_owned(), vec![]), "{arguments:?}");
    }
    let reported = |arguments: &[&str]| applied(file, arguments).1;
    assert_eq!(reported(&["~l.1", "~l.1"]), ["`l.1` has been deleted already"]);
    assert_eq!(reported(&["~l.3", "l.3.d=2"]), ["`l.3` has been deleted already"]);
    assert_eq!(reported(&["~l.4"]), ["`l.4` is not there to be deleted"]);
}

#[test]
fn no_argument_takes_back_another() {
    let file = "s = 1\nt = { a = 1, b = 2 }";
    let reported = |arguments: &[&str]| applied(file, arguments).1;
    for twice in [["s=1", "s=2"], ["s=1", "s=1"], ["s=1", "s=2,3"], ["s=2,3", "s=1"], ["s=1,2", "\"s\"=2,3"]]
    {
        assert_eq!(reported(&twice), ["`s` is given twice"], "{twice:?}");
    }
    for twice in
        [["s=1,2", "sweep.grid.s=[3]"], ["sweep.grid.\"s\"=[3]", "s=1,2"], ["sweep.grid.s=[3]", "s=1"]]
    {
        assert_eq!(reported(&twice), ["`s` is given twice"], "{twice:?}");
    }
    for twice in [
        ["sweep.grid={ s = [1, 2] }", "s=3"],
        ["sweep.grid={ \"s\" = [1, 2] }", "s=3,4"],
        ["s=3", "sweep.grid={ s = [1, 2] }"],
        ["sweep.zip={ s = [1, 2] }", "s=3"],
        ["sweep.zip.s=[1, 2]", "s=3"],
        ["sweep={ grid = { s = [1, 2] } }", "s=3"],
        ["sweep={ zip = { s = [1, 2] } }", "sweep.zip.s=3,4"],
        ["sweep.grid={ s = [1, 2] }", "sweep.grid.s=[3]"],
        ["sweep.grid={ s = [1, 2] }", "sweep.zip={ s = [3, 4] }"],
    ] {
        assert_eq!(reported(&twice), ["`s` is given twice"], "{twice:?}");
    }
    assert_eq!(
        reported(&["sweep.zip.s=1,2", "sweep.zip={ \"t.a\" = [3, 4] }"]),
        ["`sweep.zip` replaces what `s` sets"]
    );
    assert_eq!(reported(&["sweep.grid={ s = [1, 2] }", "~s"]), ["`~s` deletes what `s` sets"]);
    assert_eq!(reported(&["s=1,2", "sweep.grid={ s = [3] }"]), ["`sweep.grid` replaces what `s` sets"]);
    assert_eq!(reported(&["s=1,2", "~sweep.grid.s"]), ["`~sweep.grid.s` deletes what `s` sets"]);
    assert_eq!(reported(&["t.a=3", "t={ b = 1 }"]), ["`t` replaces what `t.a` sets"]);
    assert_eq!(reported(&["s=2", "~s"]), ["`~s` deletes what `s` sets"]);
    assert_eq!(reported(&["s=2,3", "~s"]), ["`~s` deletes what `s` sets"]);
    assert_eq!(reported(&["t.a=3", "~t"]), ["`~t` deletes what `t.a` sets"]);
    assert_eq!(reported(&["t.a=3,4", "~t"]), ["`~t` deletes what `t.a` sets"]);
    assert_eq!(reported(&["s=2,3", "~sweep"]), ["`~sweep` deletes what `s` sets"]);
    for (fine, want) in [
        (&["t={ b = 1 }", "t.a=3"][..], "{ s = 1, t = { b = 1, a = 3 } }"),
        (&["~s", "s=2"], "{ t = { a = 1, b = 2 }, s = 2 }"),
        (&["~t", "t.a=3"], "{ s = 1, t = { a = 3 } }"),
        (&["~t", "t.a=3,4"], r#"{ s = 1, sweep = { grid = { "t.a" = [3, 4] } } }"#),
        (
            &[
                "sweep.zip={ s = [1, 2] }",
                "sweep.grid={ \"t.b\" = [5] }",
                "sweep.zip.t.a=3,4",
                "sweep.repeats=2",
            ],
            r#"{ s = 1, t = { a = 1, b = 2 }, sweep = { zip = { s = [1, 2], "t.a" = [3, 4] }, grid = { "t.b" = [5] }, repeats = 2 } }"#,
        ),
    ] {
        assert_eq!(applied(file, fine), (want.to_owned(), vec![]), "{fine:?}");
    }
}

#[test]
fn mistakes_are_told() {
    let reported = |a: &[&str]| applied("seed = 1\n[optimizer.adam]\nlr = 1", a).1;
    assert_eq!(reported(&["seed"]), ["`seed` is not an override"]);
    assert_eq!(reported(&["~optimizer.adma"]), ["`optimizer.adma` is not there to be deleted"]);
    assert_eq!(reported(&["seed.x=1"]), ["`seed` is not a table: it holds `1`"]);
    assert_eq!(reported(&["seed=1,,2"]), ["a value of `seed` is empty"]);
    let large = "the integer `18446744073709551616` is out of range: TOML has those from -9223372036854775808 to 9223372036854775807";
    // Both arguments are rejected, so the second is not a repetition of the first.
    assert_eq!(reported(&["seed=18446744073709551616", "seed=1,18446744073709551616"]), [large; 2]);
    assert_eq!(reported(&["=1", "a b=1"]), ["`` is not a key", "`a b` is not a key"]);
}

/// Swept keys of items that stay mean the same as before.
#[test]
fn axes_keep_their_items() {
    let file = "l = ['a', 'b', { d = [1, 2, 3] }, 'c']
sweep = { grid = { \"l.0\" = ['x', 'y'], \"l.2.d.2\" = [8, 9] }, points = [{ \"l.3\" = 'z', s = 1 }], \
                exclude = [{ \"l.3\" = 'z' }], when = { \"l.2.d.2\" = { \"l.3\" = 'z', \"l.0\" = 'x' } } }";
    assert_eq!(
        applied(file, &["~l.1", "~l.2.d.0", "l.2.d.1=5,6"]),
        (
            "{ l = [\"a\", { d = [2, 3] }, \"c\"], sweep = { grid = { \"l.0\" = [\"x\", \"y\"], \"l.1.d.1\" = [8, 9], \
             \"l.1.d.0\" = [5, 6] }, points = [{ \"l.2\" = \"z\", s = 1 }], exclude = [{ \"l.2\" = \"z\" }], when = { \
             \"l.1.d.1\" = { \"l.2\" = \"z\", \"l.0\" = \"x\" } } } }"
                .to_owned(),
            vec![]
        )
    );
    let file = "l = ['a', 'b', 'c']";
    let gone = ["`l.1` has been deleted already".to_owned()];
    assert_eq!(applied(file, &["~l.1", "l.1=x,y"]).1, gone);
    let far = r#"{ l = ["a", "c"], sweep = { grid = { "l.3" = ["x", "y"] } } }"#;
    assert_eq!(applied(file, &["~l.1", "l.3=x,y"]), (far.to_owned(), vec![]));
}

/// `~KEY` ends what `points` has of it, as it ends axes.
#[test]
fn a_deleted_key_is_in_no_point() {
    let file = "o = { a = { lr = 1 }, b = { lr = 2 } }
sweep = { points = [{ \"o.a.lr\" = 1, s = 1 }, { \"o.a.lr\" = 2, s = 2 }] }";
    for words in [&["~o.a"][..], &["~o.a.lr", "~o.a"]] {
        assert_eq!(
            applied(file, words),
            ("{ o = { b = { lr = 2 } }, sweep = { points = [{ s = 1 }, { s = 2 }] } }".to_owned(), vec![])
        );
    }
    let none = "{ o = { b = { lr = 2 } }, sweep = {} }";
    assert_eq!(applied(file, &["~o.a", "~s"]), (none.to_owned(), vec![]));
}

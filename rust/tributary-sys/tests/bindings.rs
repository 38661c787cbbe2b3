//! The checked-in bindings are the header: every constant, size, offset and signature.
//!
//! Rust's side of it is checked while the crate compiles (bindgen's `const _` blocks). Here the C
//! compiler checks the same numbers and the same signatures against `include/tributary.h`: the test
//! turns `bindings.rs` into a C file of assertions and compiles that. It needs a C compiler, but no
//! libclang; without a compiler it says so and passes. That it can fail is tested too.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const BINDINGS: &str = include_str!("../src/bindings.rs");

fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// A Rust type of the bindings, declared in C as `name`.
fn declare(rust: &str, name: &str) -> String {
    let rust = rust.trim();
    if let Some(pointee) = rust.strip_prefix("*mut ") {
        return declare(pointee, &format!("*{name}"));
    }
    if let Some(pointee) = rust.strip_prefix("*const ") {
        let pointee = pointee.trim();
        return if pointee.starts_with('*') {
            declare(pointee, &format!("const *{name}"))
        } else {
            format!("const {}", declare(pointee, &format!("*{name}")))
        };
    }
    if let Some(array) = rust.strip_prefix('[') {
        let (element, length) = array.trim_end_matches(']').split_once("; ").unwrap();
        return declare(element, &format!("{name}[{}]", length.trim_end_matches("usize")));
    }
    if let Some(signature) = rust.strip_prefix("::core::option::Option<") {
        let signature = signature.trim_end_matches('>').trim().trim_end_matches(',');
        let signature = signature.trim_start_matches("unsafe extern \"C\" fn");
        return function(signature.trim(), &format!("(*{name})"));
    }
    let base = match rust.trim_start_matches("::core::ffi::") {
        "i8" => "int8_t",
        "u8" => "uint8_t",
        "i32" => "int32_t",
        "u32" => "uint32_t",
        "i64" => "int64_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "f32" => "float",
        "f64" => "double",
        "c_void" => "void",
        "c_char" => "char",
        named => named,
    };
    format!("{base} {name}")
}

/// `(a: A, b: B) -> C`, declared in C as `name`.
fn function(signature: &str, name: &str) -> String {
    let close = matching(signature);
    let inside = signature[1..close].trim().trim_end_matches(',');
    let mut parameters = Vec::new();
    for parameter in split(inside) {
        parameters.push(declare(parameter.split_once(':').unwrap().1, ""));
    }
    if parameters.is_empty() {
        parameters.push("void".to_owned());
    }
    let result = signature[close + 1..].trim().strip_prefix("->").unwrap_or("c_void");
    declare(result, &format!("{name}({})", parameters.join(", ")))
}

/// Where the parenthesis that opens the text closes.
fn matching(text: &str) -> usize {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 1 => return at,
            ')' => depth -= 1,
            _ => {}
        }
    }
    panic!("no end to {text}")
}

/// The parts between the commas that are in no parenthesis.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (vec![], 0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '<' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// The bindings without comments, attributes and line ends, cut into items.
fn items(bindings: &str) -> Vec<String> {
    let code: Vec<&str> = bindings
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//") && !line.starts_with("#["))
        .collect();
    let code = code.join(" ");
    let mut starts: Vec<usize> = code.match_indices("pub const ").map(|(at, _)| at).collect();
    for start in ["pub type ", "pub struct ", "pub fn ", "const _: ", "extern \"C\" {"] {
        starts.extend(code.match_indices(start).map(|(at, _)| at));
    }
    starts.sort_unstable();
    let ends = starts.iter().skip(1).copied().chain([code.len()]);
    starts.iter().zip(ends).map(|(&start, end)| code[start..end].trim().to_owned()).collect()
}

/// What was asserted, so that a parser that finds nothing is found out.
#[derive(Default)]
struct Counts {
    constants: usize,
    fields: usize,
    layouts: usize,
    functions: Vec<String>,
}

/// A C file that compiles exactly if `bindings` say what the header says.
fn assertions(bindings: &str) -> (String, Counts) {
    let mut c = String::from("#include <stddef.h>\n#include \"tributary.h\"\n");
    let mut counts = Counts::default();
    for item in items(bindings) {
        if let Some(constant) = item.strip_prefix("pub const ") {
            let (name, rest) = constant.split_once(':').unwrap();
            let value = rest.split_once('=').unwrap().1.trim().trim_end_matches(';');
            let value = value.rsplit('(').next().unwrap().trim_end_matches(')');
            writeln!(c, "_Static_assert({name} == ({value}), \"{name}\");").unwrap();
            counts.constants += 1;
        } else if let Some(alias) = item.strip_prefix("pub type ") {
            let (name, of) = alias.trim_end_matches(';').split_once('=').unwrap();
            same_type(&mut c, name.trim(), of);
        } else if let Some(structure) = item.strip_prefix("pub struct ") {
            record(&mut c, &mut counts, structure);
        } else if let Some(signature) = item.strip_prefix("pub fn ") {
            let open = signature.find('(').unwrap();
            let (name, rest) = signature.split_at(open);
            let rest = rest[..rest.find(';').unwrap()].trim();
            // A second declaration, which must agree with the header's.
            writeln!(c, "{};", function(rest, name)).unwrap();
            counts.functions.push(name.to_owned());
        } else if item.starts_with("const _: ") {
            layout(&mut c, &mut counts, &item);
        }
    }
    (c, counts)
}

/// The C type `name` is what the bindings call `rust`: two declarations of one pointer agree.
fn same_type(c: &mut String, name: &str, rust: &str) {
    let other = declare(rust, &format!("*one_{name}"));
    writeln!(c, "extern {name} *one_{name}; extern {other};").unwrap();
}

/// `name { pub a: A, ... }` or `name(pub A);`
fn record(c: &mut String, counts: &mut Counts, structure: &str) {
    if let Some((name, of)) = structure.split_once('(') {
        let of = of.trim_end_matches(';').trim_end_matches(')');
        same_type(c, name, of.trim_start_matches("pub "));
        return;
    }
    let (name, fields) = structure.split_once('{').unwrap();
    let name = name.trim();
    for field in split(fields[..fields.rfind('}').unwrap()].trim()) {
        let Some((field, of)) = field.trim().strip_prefix("pub ").and_then(|f| f.split_once(':'))
        else {
            continue; // the inside of an opaque type
        };
        let of = declare(of, &format!("(*field_{name}_{field})"));
        writeln!(c, "extern __typeof__((({name} *)0)->{field}) *field_{name}_{field};").unwrap();
        writeln!(c, "extern {of};").unwrap();
        counts.fields += 1;
    }
}

/// bindgen's assertions about sizes and offsets, as C's.
fn layout(c: &mut String, counts: &mut Counts, item: &str) {
    for assertion in item.split(';') {
        let Some((what, number)) = assertion.rsplit_once(" - ") else { continue };
        let number = number.trim().trim_end_matches(']').trim_end_matches("usize");
        let what = what.split('"').nth(1).unwrap();
        let expression = if let Some(name) = what.strip_prefix("Size of ") {
            format!("sizeof({name})")
        } else if let Some(name) = what.strip_prefix("Alignment of ") {
            format!("_Alignof({name})")
        } else {
            let place = what.strip_prefix("Offset of field: ").unwrap();
            let (name, field) = place.split_once("::").unwrap();
            format!("offsetof({name}, {field})")
        };
        writeln!(c, "_Static_assert({expression} == {number}, \"{what}\");").unwrap();
        counts.layouts += 1;
    }
}

/// Does it compile? `None` if there is no compiler.
fn compiles(c: &str) -> Option<Result<(), String>> {
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let child = Command::new(&compiler)
        .args(["-std=c11", "-fsyntax-only", "-x", "c", "-"])
        .arg(format!("-I{}", header().display()))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        let _ = writeln!(std::io::stderr(), "skipped: no C compiler ({compiler:?}); set CC");
        return None;
    };
    child.stdin.take().unwrap().write_all(c.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some(if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    })
}

#[test]
fn the_bindings_say_what_the_header_says() {
    let (c, counts) = assertions(BINDINGS);
    assert!(counts.constants > 40 && counts.fields > 15 && counts.layouts > 20, "{c}");
    if let Some(result) = compiles(&c) {
        result.unwrap();
    }
}

#[test]
fn every_function_of_the_header_is_bound() {
    let text = fs::read_to_string(header().join("tributary.h")).unwrap();
    let mut declared: Vec<String> = text
        .split("TRIB_API ")
        .skip(1)
        .filter_map(|rest| {
            let before = &rest[..rest.find('(')?];
            let name = before.rsplit([' ', '*']).next()?;
            name.starts_with("trib_").then(|| name.to_owned())
        })
        .collect();
    let mut bound = assertions(BINDINGS).1.functions;
    declared.sort();
    bound.sort();
    assert!(bound.len() > 60, "{bound:?}");
    assert_eq!(declared, bound);
}

#[test]
fn a_wrong_binding_is_found() {
    match compiles(&assertions(BINDINGS).0) {
        Some(Ok(())) => {}
        _ => return, // the test above says more
    }
    for (right, wrong) in [
        (
            "TRIB_ERR_ABORTED: trib_status = trib_status(10)",
            "TRIB_ERR_ABORTED: trib_status = trib_status(11)",
        ),
        ("TRIB_NO_COLOR: i32 = -1", "TRIB_NO_COLOR: i32 = 1"),
        ("pub struct trib_status(pub i32)", "pub struct trib_status(pub u32)"),
        ("size_of::<trib_options>() - 64usize", "size_of::<trib_options>() - 40usize"),
        ("pub timeout_ms: u32", "pub timeout_ms: i32"),
        ("timeout_ms) - 16usize", "timeout_ms) - 20usize"),
        ("pub fn trib_version() -> u32", "pub fn trib_version() -> i32"),
        ("pub type trib_stream = *mut ::core::ffi::c_void", "pub type trib_stream = *mut u8"),
        (
            "pub fn trib_comm_size(comm: *const trib_comm)",
            "pub fn trib_comm_size(comm: *mut trib_comm)",
        ),
        ("weight: f32,", "weight: u32,"),
        ("level: i32,", "level: u32,"),
    ] {
        assert!(BINDINGS.contains(right), "{right}");
        let (c, _) = assertions(&BINDINGS.replacen(right, wrong, 1));
        assert!(compiles(&c).is_some_and(|result| result.is_err()), "not found: {wrong}");
    }
}

#[test]
fn the_defaults_are_those_of_the_header() {
    // All fields but `size` are zero, as in TRIB_OPTIONS_INIT and TRIB_COUNTERS_INIT.
    let text = fs::read_to_string(header().join("tributary.h")).unwrap();
    assert!(text.contains("sizeof(trib_options), 0, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}"));
    assert!(text.contains("{(uint32_t)sizeof(trib_counters), 0, 0, 0, 0, 0, 0, 0, 0, 0}"));
    assert_eq!(tributary_sys::TRIB_OPTIONS_INIT.size, 64);
    assert_eq!(tributary_sys::TRIB_COUNTERS_INIT.size, 72);
    assert!(text.contains("{(uint32_t)sizeof(trib_capabilities), 0, 0, 0, 0}"));
    assert_eq!(tributary_sys::TRIB_CAPABILITIES_INIT.size, 24);
    assert!(text.contains("{(uint32_t)sizeof(trib_job), 0, 1, 0, 0, 0, 0, NULL, {0}}"));
    assert_eq!((tributary_sys::TRIB_JOB_INIT.size, tributary_sys::TRIB_JOB_INIT.n_ranks), (296, 1));
    assert!(text.contains("{(uint32_t)sizeof(trib_call_options), 0, 0.0, NULL, 0, 0}"));
    assert_eq!(tributary_sys::TRIB_CALL_OPTIONS_INIT.size, 32);
    assert!(text.contains("{(uint32_t)sizeof(trib_memory), 0, 0, 0, 0, 0, 0, 0, 0, 0}"));
    assert_eq!(tributary_sys::TRIB_MEMORY_INIT.size, 72);
    assert!(text
        .contains("{(uint32_t)sizeof(trib_reducer_options), 0, 0, 0, NULL, NULL, NULL, NULL, 0}"));
    assert_eq!(tributary_sys::TRIB_REDUCER_OPTIONS_INIT.size, 64);
}

#[test]
fn the_library_is_the_one_the_bindings_are_for() {
    // SAFETY: takes no object.
    assert_eq!(unsafe { tributary_sys::trib_version() }, tributary_sys::TRIB_VERSION);
}

//! Generates bindings.rs from the header, with libclang.

use std::env;
use std::path::{Path, PathBuf};

use super::Result;

/// The anonymous enums of the header, each by its first constant, and the type of its constants: in
/// C all are `int`, but the functions take the newtypes.
const ENUMS: &[(&str, &str)] = &[
    ("TRIB_OK", "trib_status"),
    ("TRIB_F16", "trib_dtype"),
    ("TRIB_SUM", "trib_op"),
    ("TRIB_CAN_PROCESSES", "u32"),
    ("TRIB_CTA_DEFAULT", "trib_cta_policy"),
    ("TRIB_VARIANT_AUTO", "trib_variant"),
    ("TRIB_UNCHECKED", "u32"),
    ("TRIB_COMM_LIVE", "trib_comm_state"),
    ("TRIB_CALL_FACTOR", "u32"),
    ("TRIB_SPARSE_AVERAGE", "u32"),
    ("TRIB_REDUCER_SUM", "u32"),
    ("TRIB_LOG_ERROR", "i32"),
];

/// Writes OUT_DIR/bindings.rs.
pub fn write() -> Result<()> {
    let header = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("include/tributary.h");
    println!("cargo:rerun-if-changed={}", header.display());
    let generated = bindgen::Builder::default()
        .header(header.to_str().ok_or("the path of the header is not UTF-8")?)
        .allowlist_item("(trib|TRIB)_.*")
        .new_type_alias("trib_(status|dtype|op|comm_state|cta_policy|variant)")
        .derive_eq(true)
        .derive_hash(true)
        .prepend_enum_name(false)
        .default_macro_constant_type(bindgen::MacroTypeVariation::Unsigned)
        .use_core()
        .merge_extern_blocks(true)
        .sort_semantically(false)
        .rust_target(bindgen::RustTarget::stable(77, 0).map_err(|error| error.to_string())?)
        .disable_header_comment()
        .raw_line("// Made from include/tributary.h by bindings.sh; do not edit.")
        .generate()?
        .to_string();
    let path = PathBuf::from(env::var("OUT_DIR")?).join("bindings.rs");
    std::fs::write(path, typed(&generated)?)?;
    Ok(())
}

/// Gives the constants of the anonymous enums the types in ENUMS.
fn typed(generated: &str) -> Result<String> {
    // In C, a comment behind what it describes begins with a mark that rustdoc does not know.
    let generated = generated.replace("#[doc = \"< ", "#[doc = \" ");
    let mut out = String::with_capacity(generated.len());
    let mut current = ("", "");
    for line in generated.lines() {
        if line.starts_with("pub type _bindgen_ty_") {
            continue;
        }
        let Some((name, alias, value)) = anonymous(line) else {
            out += line;
            out += "\n";
            continue;
        };
        if current.0 != alias {
            let (_, kind) = ENUMS
                .iter()
                .find(|(first, _)| *first == name)
                .ok_or_else(|| format!("no type is known for the enum that begins with {name}"))?;
            current = (alias, kind);
        }
        out += &match current.1 {
            kind if kind.starts_with("trib_") => {
                format!("pub const {name}: {kind} = {kind}({value});\n")
            }
            kind => format!("pub const {name}: {kind} = {value};\n"),
        };
    }
    Ok(out)
}

/// The parts of `pub const NAME: _bindgen_ty_N = VALUE;`
fn anonymous(line: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
    let (alias, value) = rest.strip_suffix(';')?.split_once(" = ")?;
    alias.starts_with("_bindgen_ty_").then_some((name, alias, value))
}

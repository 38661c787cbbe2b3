//! Element types.

use std::fmt;

use tributary_sys as sys;

use crate::error::text;

/// The type of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits.
    U64,
}

impl DType {
    /// All element types.
    pub const ALL: &'static [DType] = &[
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
    ];

    /// Returns the bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 => 1,
            DType::F16 | DType::BF16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }

    /// Returns the name, such as `"f32"`.
    pub fn name(self) -> &'static str {
        // SAFETY: trib_dtype_name gives a string for every number, and it lives for ever.
        unsafe { text(sys::trib_dtype_name(self.raw())) }
    }

    pub(crate) const fn raw(self) -> sys::trib_dtype {
        match self {
            DType::F16 => sys::TRIB_F16,
            DType::BF16 => sys::TRIB_BF16,
            DType::F32 => sys::TRIB_F32,
            DType::F64 => sys::TRIB_F64,
            DType::I8 => sys::TRIB_I8,
            DType::U8 => sys::TRIB_U8,
            DType::I32 => sys::TRIB_I32,
            DType::U32 => sys::TRIB_U32,
            DType::I64 => sys::TRIB_I64,
            DType::U64 => sys::TRIB_U64,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that a buffer may hold. Every bit pattern is a value of it.
///
/// The feature `half` adds `half::f16` and `half::bf16`.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The element type that it stands for.
    const DTYPE: DType;
}

macro_rules! element {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

element! {
    f32 => F32, f64 => F64, i8 => I8, u8 => U8,
    i32 => I32, u32 => U32, i64 => I64, u64 => U64,
}
#[cfg(feature = "half")]
element! { half::f16 => F16, half::bf16 => BF16 }

/* Element types, reductions, variants, CTA policies: sizes and names. */
#include "csrc/base/types.h"

#include <stdint.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [TRIB_F16] = {"f16", 2}, [TRIB_BF16] = {"bf16", 2}, [TRIB_F32] = {"f32", 4},
    [TRIB_F64] = {"f64", 8}, [TRIB_I8] = {"i8", 1},     [TRIB_U8] = {"u8", 1},
    [TRIB_I32] = {"i32", 4}, [TRIB_U32] = {"u32", 4},   [TRIB_I64] = {"i64", 8},
    [TRIB_U64] = {"u64", 8},
};

static const char *const ops[] = {
    [TRIB_SUM] = "sum", [TRIB_PROD] = "prod", [TRIB_MIN] = "min",
    [TRIB_MAX] = "max", [TRIB_AVG] = "avg",
};

static const char *const cta_policies[] = {
    [TRIB_CTA_DEFAULT] = "default",
    [TRIB_CTA_EFFICIENCY] = "efficiency",
    [TRIB_CTA_ZERO] = "zero",
};

static const char *const variants[] = {
    [TRIB_VARIANT_AUTO] = "auto",         [TRIB_VARIANT_NCCL] = "nccl",
    [TRIB_VARIANT_PUSH] = "push",         [TRIB_VARIANT_ONE_SHOT] = "one_shot",
    [TRIB_VARIANT_TWO_SHOT] = "two_shot", [TRIB_VARIANT_SYMMETRIC] = "symmetric",
    [TRIB_VARIANT_WINDOW] = "window",
};

bool tri_variant_valid(trib_variant variant)
{
    return variant >= TRIB_VARIANT_AUTO && variant <= TRIB_VARIANT_WINDOW;
}

bool tri_cta_policy_valid(trib_cta_policy policy)
{
    return policy >= TRIB_CTA_DEFAULT && policy <= TRIB_CTA_ZERO;
}

bool tri_bytes(size_t *out, size_t count, size_t copies, trib_dtype dtype)
{
    return !__builtin_mul_overflow(count, copies, out) &&
           !__builtin_mul_overflow(*out, dtypes[dtype].size, out) && *out <= PTRDIFF_MAX;
}

size_t trib_dtype_size(trib_dtype dtype)
{
    return tri_dtype_valid(dtype) ? dtypes[dtype].size : 0;
}

const char *trib_dtype_name(trib_dtype dtype)
{
    return tri_dtype_valid(dtype) ? dtypes[dtype].name : "?";
}

const char *trib_op_name(trib_op op)
{
    return tri_op_valid(op) ? ops[op] : "?";
}

const char *trib_variant_name(trib_variant variant)
{
    return tri_variant_valid(variant) ? variants[variant] : "?";
}

const char *trib_cta_policy_name(trib_cta_policy policy)
{
    return tri_cta_policy_valid(policy) ? cta_policies[policy] : "?";
}

/* Bad options of one call. */
#include <stdint.h>
#include <string.h>

#include "tests/api/bad_input.h"

static const char name[] = "trib_allreduce_with", list_name[] = "trib_allreduce_list_with";

static trib_status call(const struct bad *bad, size_t count, trib_dtype dtype, trib_op op,
                        const trib_call_options *options)
{
    return trib_allreduce_with(bad->comm, bad->a, bad->b, count, dtype, op, options, bad->stream);
}

static trib_status list(const struct bad *bad, trib_dtype dtype, trib_op op,
                        const trib_call_options *options)
{
    const trib_tensor tensors[] = {{bad->a, 8, TRIB_F32, 0}, {bad->a + 8, 4, dtype, 0}};
    return trib_allreduce_list_with(bad->comm, tensors, 2, op, options, bad->stream);
}

/* Options that both calls refuse. */
static void refused(const struct bad *bad, const trib_call_options *options, trib_status status,
                    const char *says)
{
    REFUSED(call(bad, 8, TRIB_F32, TRIB_SUM, options), status, name, says);
    REFUSED(list(bad, TRIB_F32, TRIB_SUM, options), status, list_name, says);
}

/* Older and newer callers. */
static void sizes(const struct bad *bad)
{
    struct {
        trib_call_options options;
        uint64_t newer[2];
    } longer = {TRIB_CALL_OPTIONS_INIT, {0, 0}};
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.size = 0;
    refused(bad, &options, TRIB_ERR_INVALID_ARGUMENT, "options.size");
    options.size = sizeof options - 1;
    refused(bad, &options, TRIB_ERR_INVALID_ARGUMENT, "options.size");
    longer.options.size = sizeof longer;
    longer.newer[1] = (uint64_t)1 << 56;
    refused(bad, &longer.options, TRIB_ERR_UNSUPPORTED, "options.size");
    longer.options.size -= 1;              /* the byte that is not 0 is beyond it */
    CHECK_OK(trib_batch_begin(bad->comm)); /* which fails, so that nothing is queued */
    CHECK_OK(call(bad, 8, TRIB_F32, TRIB_SUM, &longer.options));
    REFUSED(call(bad, 8, 0, TRIB_SUM, &longer.options), TRIB_ERR_INVALID_ARGUMENT, name, "`dtype`");
    CHECK_STATUS(trib_batch_end(bad->comm), TRIB_ERR_INVALID_ARGUMENT);
}

/* What cannot have a factor. */
static void kinds(const struct bad *bad)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = TRIB_CALL_FACTOR;
    options.factor = 2;
    for (trib_dtype dtype = TRIB_I8; dtype <= TRIB_U64; dtype++) {
        REFUSED(call(bad, 8, dtype, TRIB_SUM, &options), TRIB_ERR_UNSUPPORTED, name, "`dtype`");
        REFUSED(call(bad, 0, dtype, TRIB_SUM, &options), TRIB_ERR_UNSUPPORTED, name,
                trib_dtype_name(dtype));
        REFUSED(list(bad, dtype, TRIB_SUM, &options), TRIB_ERR_UNSUPPORTED, list_name,
                "tensors[1].dtype");
    }
    for (trib_op op = TRIB_PROD; op <= TRIB_AVG; op++) {
        REFUSED(call(bad, 8, TRIB_F32, op, &options), TRIB_ERR_UNSUPPORTED, name, "`op`");
        REFUSED(list(bad, TRIB_F32, op, &options), TRIB_ERR_UNSUPPORTED, list_name,
                trib_op_name(op));
    }
    REFUSED(list(bad, TRIB_F32, 0, &options), TRIB_ERR_INVALID_ARGUMENT, list_name, "`op`");
    options.flags |= 1u << 2;
    refused(bad, &options, TRIB_ERR_INVALID_ARGUMENT, "options.flags");
    options.flags = 1u << 31;
    refused(bad, &options, TRIB_ERR_INVALID_ARGUMENT, "options.flags");
}

/* Variants that there are not, and those that nobody serves here. */
static void variants(const struct bad *bad)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    for (options.variant = -1; options.variant <= TRIB_VARIANT_WINDOW + 1; options.variant++)
        if (options.variant < TRIB_VARIANT_AUTO || options.variant > TRIB_VARIANT_WINDOW)
            refused(bad, &options, TRIB_ERR_INVALID_ARGUMENT, "options.variant");
        else if (options.variant != TRIB_VARIANT_AUTO)
            REFUSED(list(bad, TRIB_F32, TRIB_SUM, &options), TRIB_ERR_UNSUPPORTED, list_name,
                    trib_variant_name(options.variant));
    options.variant = TRIB_VARIANT_AUTO;
    options.reserved = 1;
    refused(bad, &options, TRIB_ERR_INVALID_ARGUMENT, "options.reserved");
    options = (trib_call_options)TRIB_CALL_OPTIONS_INIT;
    if (strcmp(bad->team.backend, "host") != 0)
        return;
    options.variant = TRIB_VARIANT_NCCL;
    REFUSED(call(bad, 8, TRIB_F32, TRIB_SUM, &options), TRIB_ERR_UNSUPPORTED, name, "nccl");
    options.variant = TRIB_VARIANT_WINDOW;
    REFUSED(call(bad, 8, TRIB_F32, TRIB_SUM, &options), TRIB_ERR_UNSUPPORTED, name, "window");
}

/* Flags that there are not, and where a call is more than one or has no buffers of its own. */
static void flags(const struct bad *bad)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = 1u << 2;
    refused(bad, &options, TRIB_ERR_INVALID_ARGUMENT, "options.flags is 0x4");
    options.flags = TRIB_CALL_UNSTAGED;
    REFUSED(list(bad, TRIB_F32, TRIB_SUM, &options), TRIB_ERR_UNSUPPORTED, list_name,
            "TRIB_CALL_UNSTAGED");
    CHECK_OK(trib_batch_begin(bad->comm));
    REFUSED(call(bad, 8, TRIB_F32, TRIB_SUM, &options), TRIB_ERR_UNSUPPORTED, name, "a batch");
    CHECK_STATUS(trib_batch_end(bad->comm), TRIB_ERR_UNSUPPORTED);
}

#define OTHERS_REFUSED(options, status, says)                                                      \
    do {                                                                                           \
        REFUSED(                                                                                   \
            trib_broadcast_with(bad->comm, bad->a, bad->b, 4, TRIB_F32, 0, options, bad->stream),  \
            status, "broadcast", says);                                                            \
        REFUSED(trib_allgather_with(bad->comm, bad->a, bad->b, 4, TRIB_F32, options, bad->stream), \
                status, "allgather", says);                                                        \
        REFUSED(trib_reduce_scatter_with(bad->comm, bad->a, bad->b, 4, TRIB_F32, TRIB_SUM,         \
                                         options, bad->stream),                                    \
                status, "reduce_scatter", says);                                                   \
        REFUSED(trib_alltoall_with(bad->comm, bad->a, bad->b, 4, TRIB_F32, options, bad->stream),  \
                status, "alltoall", says);                                                         \
    } while (0)

/* The other calls with options take no factor. */
static void others(const struct bad *bad)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = TRIB_CALL_FACTOR;
    OTHERS_REFUSED(&options, TRIB_ERR_UNSUPPORTED, "a factor");
    options.flags = 0;
    options.device_factor = bad->a;
    OTHERS_REFUSED(&options, TRIB_ERR_UNSUPPORTED, "a factor");
    options.device_factor = NULL;
    options.reserved = 1;
    OTHERS_REFUSED(&options, TRIB_ERR_INVALID_ARGUMENT, "options.reserved");
    options.reserved = 0;
    options.variant = TRIB_VARIANT_TWO_SHOT;
    OTHERS_REFUSED(&options, TRIB_ERR_UNSUPPORTED, "two_shot");
}

/* Factors that cannot be read. */
static void unreadable(const struct bad *bad)
{
    static const char says[] = "options.device_factor";
    float here = 1;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.device_factor = (const float *)(const void *)((char *)bad->b + 4094);
    refused(bad, &options, TRIB_ERR_INVALID_BUFFER, says);
    options.device_factor = bad->foreign;
    if (bad->foreign != NULL)
        refused(bad, &options, TRIB_ERR_INVALID_BUFFER, says);
    options.device_factor = &here;
    if (strcmp(bad->team.backend, "host") != 0) /* there any memory is the device's */
        refused(bad, &options, TRIB_ERR_INVALID_BUFFER, says);
    for (int i = 0; i < 8; i += 7) { /* the first and the last element that is written */
        options.device_factor = bad->b + i;
        REFUSED(call(bad, 8, TRIB_F32, TRIB_SUM, &options), TRIB_ERR_INVALID_BUFFER, name,
                "overlaps");
        options.device_factor = bad->a + i;
        REFUSED(list(bad, TRIB_F32, TRIB_SUM, &options), TRIB_ERR_INVALID_BUFFER, list_name, says);
    }
    /* Beside them it may lie, and in what is only read; of nothing nothing is looked at. */
    CHECK_OK(trib_batch_begin(bad->comm));
    options.device_factor = bad->b + 8;
    CHECK_OK(call(bad, 8, TRIB_F32, TRIB_SUM, &options));
    CHECK_OK(call(bad, 4, TRIB_F64, TRIB_SUM, &options));
    options.device_factor = bad->a + 1;
    CHECK_OK(call(bad, 8, TRIB_F32, TRIB_SUM, &options));
    options.device_factor = bad->b;
    CHECK_OK(call(bad, 0, TRIB_F32, TRIB_SUM, &options));
    REFUSED(call(bad, 8, TRIB_F32, TRIB_AVG, &options), TRIB_ERR_UNSUPPORTED, name, "`op`");
    CHECK_STATUS(trib_batch_end(bad->comm), TRIB_ERR_UNSUPPORTED);
}

void bad_factors(const struct bad *bad)
{
    const trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    sizes(bad);
    kinds(bad);
    variants(bad);
    flags(bad);
    others(bad);
    unreadable(bad);
    CHECK_STATUS(trib_broadcast(NULL, bad->a, bad->b, 4, TRIB_F32, 0, NULL),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("trib_broadcast: `comm`");
    CHECK_STATUS(trib_alltoall_with(NULL, bad->a, bad->b, 4, TRIB_F32, &options, NULL),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("trib_alltoall_with: `comm`");
    CHECK_STATUS(trib_allreduce_with(NULL, bad->a, bad->b, 4, TRIB_F32, TRIB_SUM, &options, NULL),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("trib_allreduce_with");
    CHECK_STATUS(trib_allreduce_list_with(NULL, NULL, 0, TRIB_SUM, &options, NULL),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("`comm`");
    CHECK_OK(trib_batch_begin(bad->comm));
    REFUSED(list(bad, TRIB_F32, TRIB_SUM, &options), TRIB_ERR_INVALID_USAGE, list_name, "batch");
    CHECK_STATUS(trib_batch_end(bad->comm), TRIB_ERR_INVALID_USAGE);
}

/* Fuzz target: the option structs, strings included.
 *
 * A struct that calls itself shorter or longer lies in a block of exactly that size, so that the
 * sanitizer sees a read beyond it. (A size that is not the memory's is the caller's lie.) */
#include <math.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum { TEXT = 72, LONGEST = 96, COUNT = 64 };

struct text {
    char data[TEXT];
};

static const char *const names[] = {
    "host",     "nccl",      "auto",        "dense",           "topka",
    "topka2",   "topksa",    "gtopk",       "oktopk",          "srs",
    "vgg",      "lstm",      "bert",        "shared",          "chunked",
    "topkaopt", "gaussiank", "gaussianksa", "gaussiankconcat", "hier",
    ""};

/* NULL, a name, or any bytes. */
static const char *pick_text(struct bytes *in, struct text *text)
{
    const uint32_t which = bytes_below(in, 2 * sizeof names / sizeof *names);
    memset(text->data, 0, sizeof text->data);
    if (which == 0)
        return NULL;
    if (which <= sizeof names / sizeof *names)
        return names[which - 1];
    (void)bytes_copy(in, text->data, bytes_below(in, TEXT));
    return text->data;
}

/* The size that a struct of `known` bytes says it has. */
static uint32_t pick_size(struct bytes *in, size_t known)
{
    return bytes_rare(in, 8) ? bytes_below(in, LONGEST) : (uint32_t)known;
}

/* `size` bytes that begin with the struct; at least its member `size`, which it begins with. */
static void *block_of(const void *options, size_t known, uint32_t size, struct bytes *in)
{
    const size_t whole = size < sizeof size ? sizeof size : size;
    unsigned char *block = calloc(1, whole);
    if (block == NULL)
        FUZZ_FAIL("no memory");
    memcpy(block, options, whole < known ? whole : known);
    if (whole > known && bytes_rare(in, 2))
        (void)bytes_copy(in, block + known, whole - known);
    memcpy(block, &size, sizeof size);
    return block;
}

static double pick_number(struct bytes *in)
{
    static const double usual[] = {0, 0.01, 0.5, 1, -1, 1e300, 5e-324, (double)NAN, INFINITY, 2};
    const uint32_t which = bytes_below(in, 16);
    if (which < sizeof usual / sizeof *usual)
        return usual[which];
    const uint64_t bits = bytes_u64(in);
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* ------------------------------------------------------------------------------ of a communicator */

/* May it be a name? */
static bool is_name(const char *text)
{
    for (size_t i = 0; text != NULL && text[i] != '\0'; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    return text == NULL || (text[0] != '\0' && strlen(text) <= TRIB_NAME_MAX);
}

/* What goes to NCCL, and host ignores. */
static bool pick_configuration(struct bytes *in, trib_options *options, struct text *text)
{
    if (!bytes_rare(in, 4))
        return true;
    options->min_ctas = bytes_rare(in, 4) ? bytes_u32(in) : bytes_below(in, 80);
    options->max_ctas = bytes_rare(in, 4) ? bytes_u32(in) : bytes_below(in, 80);
    options->cta_policy = (trib_cta_policy)(bytes_rare(in, 4) ? bytes_u32(in) : bytes_below(in, 4));
    options->network = pick_text(in, &text[0]);
    options->name = pick_text(in, &text[1]);
    return options->min_ctas <= TRIB_CTAS_MAX && options->max_ctas <= TRIB_CTAS_MAX &&
           (options->max_ctas == 0 || options->min_ctas <= options->max_ctas) &&
           options->cta_policy >= TRIB_CTA_DEFAULT && options->cta_policy <= TRIB_CTA_ZERO &&
           is_name(options->network) && is_name(options->name);
}

/* Three texts. */
static trib_options *pick_options(struct bytes *in, struct text *text, bool *valid)
{
    trib_options options = TRIB_OPTIONS_INIT;
    const uint32_t size = pick_size(in, sizeof options);
    options.flags = bytes_rare(in, 4) ? bytes_u32(in) : bytes_below(in, FUZZ_OPTION_FLAGS + 1);
    options.backend = pick_text(in, text);
    options.timeout_ms = bytes_u32(in) | 4096; /* no call of one rank takes that long */
    options.close_timeout_ms = bytes_u32(in);
    options.call_timeout_ms = bytes_u32(in) | 4096;
    options.peer_bytes = bytes_u32(in);
    const bool good = pick_configuration(in, &options, &text[1]);
    const uint32_t windows = options.flags & (TRIB_WINDOWS | TRIB_WINDOWS_UNABORTABLE);
    *valid = good && size == sizeof options && options.flags <= FUZZ_OPTION_FLAGS &&
             windows != TRIB_WINDOWS_UNABORTABLE &&
             (options.backend == NULL || strcmp(options.backend, "host") == 0);
    return block_of(&options, sizeof options, size, in);
}

static void of_group(struct bytes *in)
{
    struct text text[3];
    bool valid;
    trib_options *options = pick_options(in, text, &valid);
    trib_group *group = (trib_group *)1;
    const trib_status status = STATUS(trib_group_create(&group, NULL, 1, options));
    FUZZ_CHECK((status == TRIB_OK) == (group != NULL) && (status == TRIB_OK) == valid);
    free(options);
    if (group != NULL)
        MUST(trib_group_destroy(group));
}

static trib_comm *open_rank(struct bytes *in)
{
    struct text text[3];
    bool valid;
    trib_id id;
    trib_comm *comm = (trib_comm *)1;
    trib_options *options = pick_options(in, text, &valid);
    MUST(trib_id_create(&id, "host"));
    const trib_status status = STATUS(trib_comm_create(&comm, &id, 0, 1, 0, options));
    FUZZ_CHECK((status == TRIB_OK) == (comm != NULL) && (status == TRIB_OK) == valid);
    if (comm != NULL)
        FUZZ_CHECK(strcmp(trib_comm_name(comm), options->name == NULL ? "" : options->name) == 0);
    free(options);
    return comm;
}

/* ------------------------------------------------------------------------------------- of a call */

enum call { LIST, ALLREDUCE, BROADCAST, ALLGATHER, REDUCE_SCATTER, ALLTOALL, CALLS };

/* Of the only rank: what is sent comes back, times a factor of the first two. An alltoall is never in
 * place. */
static trib_status call_with(enum call call, trib_comm *comm, float *values, const float *before,
                             const trib_call_options *options)
{
    const trib_tensor tensor = {values, COUNT, TRIB_F32, 0};
    switch (call) {
    case LIST:
        return STATUS(trib_allreduce_list_with(comm, &tensor, 1, TRIB_SUM, options, NULL));
    case ALLREDUCE:
        return STATUS(
            trib_allreduce_with(comm, values, values, COUNT, TRIB_F32, TRIB_SUM, options, NULL));
    case BROADCAST:
        return STATUS(trib_broadcast_with(comm, values, values, COUNT, TRIB_F32, 0, options, NULL));
    case ALLGATHER:
        return STATUS(trib_allgather_with(comm, values, values, COUNT, TRIB_F32, options, NULL));
    case REDUCE_SCATTER:
        return STATUS(trib_reduce_scatter_with(comm, values, values, COUNT, TRIB_F32, TRIB_SUM,
                                               options, NULL));
    default:
        return STATUS(trib_alltoall_with(comm, before, values, COUNT, TRIB_F32, options, NULL));
    }
}

static void of_call(struct bytes *in, trib_comm *comm)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    const uint32_t size = pick_size(in, sizeof options);
    const float device_factor = 2;
    float values[COUNT], before[COUNT];
    options.flags = bytes_rare(in, 4) ? bytes_u32(in) : bytes_below(in, 4);
    options.factor = pick_number(in);
    options.device_factor = bytes_rare(in, 2) ? &device_factor : NULL;
    options.variant = bytes_rare(in, 4) ? (trib_variant)bytes_u32(in) : TRIB_VARIANT_AUTO;
    options.reserved = bytes_rare(in, 16) ? bytes_u32(in) : 0;
    trib_call_options *block = block_of(&options, sizeof options, size, in);
    bool more = false;
    for (uint32_t i = sizeof options; i < size; i++)
        more = more || ((unsigned char *)block)[i] != 0;
    const enum call call = (enum call)bytes_below(in, CALLS);
    const bool scaled = options.device_factor != NULL || (options.flags & TRIB_CALL_FACTOR) != 0;
    const bool unstaged = (options.flags & TRIB_CALL_UNSTAGED) != 0;
    const bool valid = size >= sizeof options && !more &&
                       options.flags <= (TRIB_CALL_FACTOR | TRIB_CALL_UNSTAGED) &&
                       options.variant == TRIB_VARIANT_AUTO && options.reserved == 0 &&
                       (call <= ALLREDUCE || !scaled) && (call != LIST || !unstaged);
    for (int i = 0; i < COUNT; i++)
        before[i] = values[i] = (float)i;
    const trib_status status = call_with(call, comm, values, before, block);
    FUZZ_CHECK(valid == (status == TRIB_OK) && (valid || fuzz_is_mistake(status)));
    trib_device *device = NULL;
    MUST(trib_device_get(&device, "host", 0));
    MUST(trib_stream_wait(device, NULL));
    const float factor = options.device_factor != NULL ? device_factor : (float)options.factor;
    for (int i = 0; i < COUNT; i++) {
        const float expected = valid && scaled ? factor * before[i] : before[i];
        FUZZ_CHECK(values[i] == expected || (isnan(values[i]) && isnan(expected)));
    }
    free(block);
}

/* ------------------------------------------------------------------------------------ of a state */

static trib_sparse_options *pick_sparse(struct bytes *in, struct text *text, int32_t *host)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    const uint32_t size = pick_size(in, sizeof options);
    options.flags = bytes_rare(in, 8) ? bytes_u32(in) : bytes_below(in, 32);
    options.algorithm = pick_text(in, &text[0]);
    options.density = pick_number(in);
    options.k = bytes_rare(in, 4) ? bytes_u64(in) : bytes_u8(in);
    options.decay = pick_number(in);
    options.wire = bytes_rare(in, 4) ? (trib_dtype)bytes_u32(in) : 0;
    options.chunk = bytes_rare(in, 4) ? bytes_u32(in) : 1u << bytes_below(in, 17);
    options.constants = pick_text(in, &text[1]);
    options.norm_every = bytes_u8(in);
    options.reserved = bytes_rare(in, 16);
    options.momentum = bytes_rare(in, 4) ? pick_number(in) : 0;
    options.clip_norm = bytes_rare(in, 8) ? pick_number(in) : 0;
    *host = (int32_t)bytes_u32(in);
    options.hosts = *host % 2 == 0 ? NULL : host;
    return block_of(&options, sizeof options, size, in);
}

/* One call with whatever state the options make. */
static void call_once(trib_sparse *sparse, bool entries)
{
    double gradient[COUNT], result[COUNT];
    uint32_t index[COUNT], count = 0;
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    trib_device *device = NULL;
    for (int i = 0; i < COUNT; i++)
        gradient[i] = i % 7;
    FUZZ_CHECK(trib_sparse_capacity(sparse) <= COUNT);
    const trib_status status =
        entries
            ? STATUS(trib_sparse_allreduce_entries(sparse, gradient, index, result, &count, NULL))
            : STATUS(trib_sparse_allreduce(sparse, gradient, result, NULL));
    FUZZ_CHECK(status == TRIB_OK);
    MUST(trib_device_get(&device, "host", 0));
    MUST(trib_stream_wait(device, NULL));
    (void)STATUS(trib_sparse_status(sparse)); /* not finite: a double is any bits of a half */
    MUST(trib_sparse_statistics_get(&statistics, sparse));
    FUZZ_CHECK(statistics.calls == 1 && statistics.calls_applied <= 1 && count <= COUNT);
}

static void of_state(struct bytes *in, trib_comm *comm)
{
    struct text text[2];
    int32_t host; /* of the only rank */
    trib_sparse_options *options = pick_sparse(in, text, &host);
    trib_sparse *sparse = (trib_sparse *)1;
    uint64_t bytes = 1;
    const size_t count = bytes_rare(in, 4) ? bytes_u64(in) : bytes_below(in, COUNT + 1);
    const trib_dtype dtype =
        bytes_rare(in, 8) ? (trib_dtype)bytes_u32(in) : TRIB_F16 + (trib_dtype)bytes_below(in, 4);
    const trib_status measured = STATUS(trib_sparse_bytes(&bytes, comm, count, dtype, options));
    FUZZ_CHECK(measured == TRIB_OK || (bytes == 0 && measured < TRIB_ERR_ABORTED));
    if (count <= COUNT) {
        const trib_status status = STATUS(trib_sparse_create(&sparse, comm, count, dtype, options));
        FUZZ_CHECK(status == measured && (status == TRIB_OK) == (sparse != NULL));
        if (sparse != NULL) {
            call_once(sparse, (options->flags & TRIB_SPARSE_ENTRIES) != 0);
            MUST(trib_sparse_destroy(sparse));
        }
    }
    free(options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct bytes in = {data, bytes};
    if (bytes_rare(&in, 8))
        of_group(&in);
    trib_comm *comm = open_rank(&in);
    while (comm != NULL && in.left > 0)
        if (bytes_rare(&in, 2))
            of_call(&in, comm);
        else
            of_state(&in, comm);
    if (comm != NULL)
        MUST(trib_comm_destroy(comm));
    fuzz_quiet();
    return 0;
}

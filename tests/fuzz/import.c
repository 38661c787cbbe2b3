/* Fuzz target: bytes to trib_sparse_import.
 *
 * An input describes two states, and then either gives all bytes of the import or says how to
 * change an export of the first state: which bytes, how many are missing, and whether its digest is
 * made to fit again, without which nothing beyond the digest would be reached. */
#include <math.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum { COUNT = 200, EDITS = 8 };

/* Where the head of an export has its length, its digest and the lengths of its parts. */
enum { LENGTH_AT = 16, DIGEST_AT = 24, PARTS_AT = 96, PARTS = 3, HEAD = 128 };
enum { LARGEST = 4096, ROOM = HEAD + PARTS * LARGEST }; /* of a part; of all, with the head */

struct state {
    trib_sparse *sparse;
    trib_dtype dtype;
    size_t count;
    bool in_place;
};

/* What both ranks do with their state of each kind. */
struct ranks {
    trib_comm *comms[2];
    struct state states[2];
    int size;
    const trib_sparse_options *options;
    trib_status status[2];
    const void *data;
    size_t bytes;
    int32_t add;
};

/* -------------------------------------------------------------------------------------- exports */

static uint64_t word_at(const uint8_t *data, size_t at)
{
    uint64_t word;
    memcpy(&word, data + at, sizeof word);
    return word;
}

/* As csrc/sparse/snapshot.c computes it, for data of any length. */
static uint64_t digest_of(const uint8_t *data, size_t bytes)
{
    uint64_t digest = 0x9e3779b97f4a7c15u;
    for (size_t at = 0; at < HEAD; at += 8)
        digest = (digest ^ (at == DIGEST_AT ? 0 : word_at(data, at))) * 0x100000001b3u;
    for (size_t at = HEAD; at + 8 <= bytes; at += 8) {
        digest = (digest ^ word_at(data, at)) * 0x100000001b3u;
        digest ^= digest >> 29;
    }
    return digest;
}

/* A block of exactly its size; the caller frees it. */
static uint8_t *export(trib_sparse *sparse, size_t *bytes)
{
    *bytes = (size_t)trib_sparse_export_bytes(sparse);
    uint8_t *data = malloc(*bytes);
    FUZZ_CHECK(data != NULL && *bytes >= HEAD);
    MUST(trib_sparse_export(sparse, data, *bytes, NULL));
    if (word_at(data, DIGEST_AT) != digest_of(data, *bytes) || word_at(data, LENGTH_AT) != *bytes)
        FUZZ_FAIL("import.c does not know the head of an export: this target tests little");
    return data;
}

/* Parts of other sizes, in an export that is as long as they say. */
static void resize(struct bytes *in, uint8_t *data, size_t *bytes)
{
    uint64_t whole = HEAD;
    for (size_t part = 0; part < PARTS; part++) {
        uint64_t size = word_at(data, PARTS_AT + 8 * part);
        size = (size + (uint64_t)(int8_t)bytes_u8(in) * 4) % LARGEST;
        memcpy(data + PARTS_AT + 8 * part, &size, sizeof size);
        whole += (size + 15) / 16 * 16;
    }
    *bytes = (size_t)whole;
}

/* Change bytes of the export, of its head above all, and its length. */
static void edit(struct bytes *in, uint8_t *data, size_t *bytes)
{
    const size_t whole = *bytes;
    for (uint32_t edits = bytes_below(in, EDITS); edits > 0; edits--) {
        const size_t at = bytes_rare(in, 2) ? bytes_u16(in) % whole : bytes_below(in, HEAD);
        data[at] = bytes_u8(in);
    }
    const uint32_t how = bytes_below(in, 8);
    if (how == 7)
        *bytes = bytes_u16(in) % (whole + 1);
    if (how == 6)
        resize(in, data, bytes);
}

/* Length and digest fit what is there. */
static void repair(uint8_t *data, size_t bytes)
{
    const uint64_t length = bytes;
    memcpy(data + LENGTH_AT, &length, sizeof length);
    const uint64_t digest = digest_of(data, bytes);
    memcpy(data + DIGEST_AT, &digest, sizeof digest);
}

static uint8_t *edited(struct bytes *in, trib_sparse *sparse, size_t *bytes, bool *changed)
{
    uint8_t *export_data = export(sparse, bytes);
    const size_t whole = *bytes;
    uint8_t *data = calloc(1, whole + ROOM);
    FUZZ_CHECK(data != NULL);
    memcpy(data, export_data, whole);
    edit(in, data, bytes);
    *changed = *bytes != whole || memcmp(data, export_data, whole) != 0;
    free(export_data);
    if (!bytes_rare(in, 4) && *bytes >= HEAD)
        repair(data, *bytes);
    uint8_t *exact = malloc(*bytes + (*bytes == 0));
    FUZZ_CHECK(exact != NULL);
    memcpy(exact, data, *bytes);
    free(data);
    return exact;
}

static uint8_t *raw(struct bytes *in, size_t *bytes)
{
    uint8_t *data = malloc(in->left + 1);
    FUZZ_CHECK(data != NULL);
    *bytes = bytes_copy(in, data, in->left);
    return data;
}

/* --------------------------------------------------------------------------------------- states */

static void pick_state(struct bytes *in, struct state *state, trib_sparse_options *options)
{
    static const char *const algorithms[] = {
        "topkaopt", "oktopk", "gaussiank", "gaussiankconcat", "topka", "shared", "chunked",
        "srs",      "gtopk",  "topksa",    "dense",           "auto",  "hier"};
    static const char *const constants[] = {NULL, "vgg", "lstm", "bert"};
    options->flags = TRIB_SPARSE_USE_K;
    options->algorithm = algorithms[bytes_below(in, sizeof algorithms / sizeof *algorithms)];
    options->constants = constants[bytes_below(in, 4)];
    options->k = bytes_rare(in, 2) ? bytes_below(in, COUNT) : 10;
    options->chunk = bytes_rare(in, 4) ? 64 : 0;
    state->dtype = bytes_rare(in, 4) ? TRIB_F64 : TRIB_F32;
    state->count = bytes_rare(in, 4) ? bytes_below(in, COUNT) : COUNT;
    state->in_place = bytes_rare(in, 8);
    if (state->in_place)
        options->flags |= TRIB_SPARSE_IN_PLACE;
}

static void create(int rank, void *argument)
{
    struct ranks *ranks = argument;
    struct state *state = &ranks->states[rank];
    MUST(trib_sparse_create(&state->sparse, ranks->comms[rank], state->count, state->dtype,
                            ranks->options));
}

/* One call, and wait for it. Gradients are small, and grow with the rank. */
static void call(int rank, void *argument)
{
    struct ranks *ranks = argument;
    const struct state *state = &ranks->states[rank];
    trib_device *device = NULL;
    double gradient[COUNT], result[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        const double value = (double)((i * 37 + (size_t)rank) % 101) - 50;
        if (state->dtype == TRIB_F64)
            gradient[i] = value;
        else
            ((float *)gradient)[i] = (float)value;
    }
    MUST(trib_device_get(&device, "host", rank));
    MUST(trib_sparse_allreduce(state->sparse, gradient, result, NULL));
    MUST(trib_stream_wait(device, NULL));
    const trib_status status = STATUS(trib_sparse_status(state->sparse));
    FUZZ_CHECK(status == TRIB_OK || status == TRIB_ERR_NON_FINITE);
}

static void destroy(int rank, void *argument)
{
    struct ranks *ranks = argument;
    MUST(trib_sparse_destroy(ranks->states[rank].sparse));
}

static void import(int rank, void *argument)
{
    struct ranks *ranks = argument;
    ranks->status[rank] = STATUS(trib_sparse_import(ranks->states[rank].sparse, ranks->data,
                                                    ranks->bytes, ranks->add, NULL));
}

/* ------------------------------------------------------------------------------------ the import */

/* The residual after an import: `data`'s, or with `add` the sum. NaNs have any bits. */
static void is_imported(const struct ranks *ranks, const uint8_t *before, const uint8_t *after)
{
    const struct state *state = &ranks->states[0];
    for (size_t i = 0; i < state->count && !state->in_place; i++) {
        const uint8_t *from = (const uint8_t *)ranks->data + HEAD;
        double old, given, found;
        float narrow[3];
        if (state->dtype == TRIB_F64) {
            memcpy(&old, before + HEAD + 8 * i, 8);
            memcpy(&given, from + 8 * i, 8);
            memcpy(&found, after + HEAD + 8 * i, 8);
        } else {
            memcpy(&narrow[0], before + HEAD + 4 * i, 4);
            memcpy(&narrow[1], from + 4 * i, 4);
            memcpy(&narrow[2], after + HEAD + 4 * i, 4);
            old = narrow[0], given = narrow[1], found = narrow[2];
        }
        double expected = given;
        if (ranks->add)
            expected = state->dtype == TRIB_F64 ? old + given : (double)((float)old + (float)given);
        FUZZ_CHECK(found == expected || (isnan(found) && isnan(expected)));
    }
}

/* Import `ranks->data` on all ranks, or with `add` on rank 0 alone. */
static void try_import(struct ranks *ranks, bool must)
{
    size_t bytes, bytes_after;
    uint8_t *before = export(ranks->states[0].sparse, &bytes);
    fuzz_ranks(ranks->add ? 1 : ranks->size, import, ranks);
    const trib_status status = ranks->status[0];
    uint8_t *after = export(ranks->states[0].sparse, &bytes_after);
    FUZZ_CHECK(bytes == bytes_after);
    FUZZ_CHECK(status == TRIB_OK || (status == TRIB_ERR_INVALID_ARGUMENT && !must));
    if (status == TRIB_OK)
        is_imported(ranks, before, after);
    else
        FUZZ_CHECK(memcmp(before, after, bytes) == 0);
    free(before);
    free(after);
}

static void open_ranks(struct ranks *ranks, struct bytes *in)
{
    trib_options options = TRIB_OPTIONS_INIT;
    trib_group *group = NULL;
    options.backend = "host";
    options.timeout_ms = 8000;
    ranks->size = bytes_rare(in, 4) ? 2 : 1;
    MUST(trib_group_create(&group, NULL, ranks->size, &options));
    MUST(trib_group_split(ranks->comms, group));
}

/* The export comes of one state, the import goes to another; both may be of one kind. */
static void both_states(struct bytes *in, struct ranks *ranks, struct ranks *source)
{
    trib_sparse_options from = TRIB_SPARSE_OPTIONS_INIT, to = TRIB_SPARSE_OPTIONS_INIT;
    struct state kind = {.sparse = NULL};
    struct bytes same = *in;
    pick_state(in, &kind, &from);
    source->states[0] = source->states[1] = kind;
    pick_state(bytes_rare(in, 4) ? in : &same, &kind, &to);
    ranks->states[0] = ranks->states[1] = kind;
    source->options = &from;
    ranks->options = &to;
    fuzz_ranks(ranks->size, create, source);
    fuzz_ranks(ranks->size, create, ranks);
    for (uint32_t calls = bytes_below(in, 3); calls > 0; calls--)
        fuzz_ranks(ranks->size, call, source);
    if (bytes_rare(in, 2))
        fuzz_ranks(ranks->size, call, ranks);
    source->options = ranks->options = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct bytes in = {data, bytes};
    struct ranks ranks = {.size = 0};
    open_ranks(&ranks, &in);
    struct ranks source = ranks;
    both_states(&in, &ranks, &source);
    const struct state *from = &source.states[0], *to = &ranks.states[0];
    ranks.add = (int32_t)bytes_below(&in, 2);
    bool changed = true;
    uint8_t *import_data = bytes_rare(&in, 4)
                               ? raw(&in, &ranks.bytes)
                               : edited(&in, source.states[0].sparse, &ranks.bytes, &changed);
    ranks.data = import_data;
    try_import(&ranks, !changed && from->count == to->count && from->dtype == to->dtype &&
                           from->in_place == to->in_place);
    /* Whatever was imported, calls can run with it: past the next turn of every schedule. */
    for (uint32_t calls = bytes_rare(&in, 8) ? 34 : 2; calls > 0; calls--)
        fuzz_ranks(ranks.size, call, &ranks);
    fuzz_ranks(ranks.size, destroy, &source);
    fuzz_ranks(ranks.size, destroy, &ranks);
    free(import_data);
    for (int rank = 0; rank < ranks.size; rank++)
        MUST(trib_comm_destroy(ranks.comms[rank]));
    fuzz_quiet();
    return 0;
}

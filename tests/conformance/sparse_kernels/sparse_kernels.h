/* What every table of sparse kernels must do: kernels/sparse.h in tests.
 *
 * A case lays the arguments of one call out in an arena, full of random bytes. `expect` does to
 * the image of it what the call should do, by naive arithmetic written from the contracts; then the
 * call is made several times (scratch memory full of random bytes, of zeros, of ones; directly, out
 * of a captured graph, on two streams at once, on the twin) and every byte is compared each time.
 * What a contract leaves open is forgotten on both sides (arena_forget). */
#ifndef TRI_TESTS_CONFORMANCE_SPARSE_KERNELS_H
#define TRI_TESTS_CONFORMANCE_SPARSE_KERNELS_H

#include "kernels/sparse.h"
#include "tests/conformance/kernels/kernels.h"

/* An offset that stands for NULL. */
#define SPARSE_NONE ((size_t)-1)

/* ---------------------------------------------------------------------------------------- rig */

/* An arena and what else calls need. */
struct sparse_rig {
    struct arena arena;
    unsigned char *inputs;     /* host: the image as it was before the call */
    unsigned char *mirror;     /* host: the twin's memory; NULL if there is none */
    unsigned char *second;     /* device: the memory of the other stream; NULL if there is none */
    unsigned char *scratch[3]; /* device, device for the other stream, host for the twin */
    size_t scratch_bytes[3];
    unsigned char *dirt[3]; /* host: what fills the scratch memory */
    size_t dirt_bytes;
    bool quick;
    unsigned calls, cases, fallbacks;
};

bool sparse_rig_open(struct sparse_rig *rig, const struct kernels_place *place, size_t capacity);
void sparse_rig_close(struct sparse_rig *rig);

/* Whether this case is left out: if there is little time, all but one in `one_in`. */
bool sparse_leaves_out(struct sparse_rig *rig, unsigned one_in);

/* Where a call works. */
struct sparse_target {
    const struct tri_sparse_kernels *kernels;
    unsigned char *memory; /* arena offsets count from here */
    void *scratch;
    trib_stream stream;
};

struct sparse_call {
    const char *what;
    trib_status (*queue)(const struct sparse_target *target, const void *argument);
    void (*expect)(struct sparse_rig *rig, const void *argument);
    /* Optional: arena.found holds the first run's bytes; check there what no image can say. */
    void (*adopt)(struct sparse_rig *rig, const void *argument);
    const void *argument;
    /* For scratch_bytes. */
    size_t count, entries;
    uint32_t k;
    trib_dtype dtype;
};

/* Make the call in all ways and compare. Afterwards the image holds what it should have done. */
void sparse_run(struct sparse_rig *rig, const struct sparse_call *call);
/* The call captured once and launched n times, on other data each time: `refill` changes the image,
 * not where things lie. Scratch memory is as the launch before left it. */
void sparse_run_series(struct sparse_rig *rig, const struct sparse_call *call,
                       void (*refill)(struct sparse_rig *rig, const void *argument, int i), int n);
/* At least so much scratch memory at rig->scratch[0], full of random bytes. */
void *sparse_scratch(struct sparse_rig *rig, size_t bytes);
/* Memory + offset, NULL for SPARSE_NONE. */
void *sparse_at(unsigned char *memory, size_t offset);

/* ---------------------------------------------------------------------------- things in arenas */

/* A word, with a value or random. */
size_t sparse_word(struct sparse_rig *rig, uint32_t value);
uint32_t sparse_word_get(const unsigned char *bytes, size_t at);
void sparse_word_put(unsigned char *bytes, size_t at, uint32_t value);
/* A header whose signature is another one; what `signing` of the header at `at` (or SPARSE_NONE) is in
 * `memory`, and what it writes into it in the image. */
size_t sparse_header(struct sparse_rig *rig);
struct tri_signing sparse_signing(size_t at, unsigned char *memory);
void sparse_expect_signed(struct sparse_rig *rig, size_t at, uint32_t nonfinite);
/* A result that is cleared unless the word at `decision` says that the call is applied. Each but that
 * may be SPARSE_NONE. */
struct sparse_clearing {
    size_t dense, bytes, count, decision;
};
/* `shift` SPARSE_NONE: none that is dense. */
struct sparse_clearing sparse_place_clearing(struct sparse_rig *rig, size_t bytes, size_t shift,
                                             uint32_t decision);
struct tri_clearing sparse_clearing(const struct sparse_clearing *w, unsigned char *memory);
void sparse_expect_cleared(struct sparse_rig *rig, const struct sparse_clearing *w);
/* What a kernel that makes a result says of its n values, where one is not finite, in the word at
 * `at` (or SPARSE_NONE). In the image. */
void sparse_expect_overflow(struct sparse_rig *rig, size_t at, size_t values, trib_dtype dtype,
                            size_t n);
/* An element of a float type. */
size_t sparse_number(struct sparse_rig *rig, trib_dtype dtype, double value);

/* tri_entries by offsets. */
struct sparse_list {
    size_t count, index, value; /* count may be SPARSE_NONE */
    size_t starts;              /* or SPARSE_NONE */
    uint32_t capacity;
    trib_dtype dtype;
};

struct sparse_list sparse_list_place(struct sparse_rig *rig, uint32_t capacity, trib_dtype dtype,
                                     bool counted);
struct tri_entries sparse_entries(const struct sparse_list *list, unsigned char *memory);
uint32_t sparse_list_count(const struct sparse_rig *rig, const struct sparse_list *list);
/* How many of its entries have an index below `bound`. */
uint32_t sparse_list_below(const struct sparse_rig *rig, const struct sparse_list *list,
                           uint64_t bound);
uint32_t sparse_list_index(const struct sparse_rig *rig, const struct sparse_list *list,
                           uint32_t i);
double sparse_list_value(const struct sparse_rig *rig, const struct sparse_list *list, uint32_t i);
void sparse_list_put(struct sparse_rig *rig, const struct sparse_list *list, uint32_t i,
                     uint32_t index, double value);
/* The list has n entries; nobody says what lies behind them. */
void sparse_list_end(struct sparse_rig *rig, const struct sparse_list *list, uint32_t n);
/* Its starts, of `range` elements, where it has room for them. */
void sparse_starts_put(struct sparse_rig *rig, const struct sparse_list *list, size_t range);
/* An input, once the list has its entries: room for starts, and they. */
void sparse_list_start(struct sparse_rig *rig, struct sparse_list *list, size_t range);
/* An input: n entries of random indices in [first, first + range), each `one_in`-th by chance or
 * fewer if the capacity ends, of values of `kind` (see sparse_fill). */
void sparse_list_fill(struct sparse_rig *rig, const struct sparse_list *list, size_t first,
                      size_t range, uint32_t n, int kind);

/* tri_accumulator by offsets. */
struct sparse_state {
    size_t buffer[2], current, gradient;
    size_t velocity[2], velocity_current; /* SPARSE_NONE: the gradient is itself, no velocity */
    trib_dtype dtype, gradient_dtype;
    bool makes_velocity;
    double decay, momentum;
    size_t count;
};

/* `shift`: elements beyond alignment, of the buffers (low two bits) and of the gradient (next two).
 * `gradient_dtype` 0: in place. */
struct sparse_state sparse_state_place(struct sparse_rig *rig, size_t count, trib_dtype dtype,
                                       trib_dtype gradient_dtype, unsigned shift);
/* For accumulate and select: now and then acc's gradient is a velocity that is made, too. */
void sparse_state_make_velocity(struct sparse_rig *rig, struct sparse_state *state, unsigned shift);
struct tri_accumulator sparse_accumulator(const struct sparse_state *state, unsigned char *memory);
/* In the image: where acc lies, where the residual lies. */
size_t sparse_acc_at(const struct sparse_rig *rig, const struct sparse_state *state);
size_t sparse_residual_at(const struct sparse_rig *rig, const struct sparse_state *state);
/* acc (in place) or gradient and residual get values of a kind. */
void sparse_state_fill(struct sparse_rig *rig, const struct sparse_state *state, int kind,
                       uint32_t k);

/* ------------------------------------------------------------------------------------- inputs */

enum sparse_kind {
    SPARSE_GAUSS,
    SPARSE_LAPLACE,
    SPARSE_STUDENT,
    SPARSE_ZIPF,
    SPARSE_LAYERS,
    SPARSE_UP,
    SPARSE_DOWN,
    SPARSE_SAW_NARROW,
    SPARSE_SAW_WIDE,
    SPARSE_HOT_TILE,
    SPARSE_FEW,        /* about one in 16 is not 0 */
    SPARSE_TAME_KINDS, /* those above hold numbers that may be added to something */
    SPARSE_EQUAL = SPARSE_TAME_KINDS,
    SPARSE_ZERO,
    SPARSE_SIGNED_ZEROS,
    SPARSE_DENORMAL,
    SPARSE_TIES_BELOW, /* k - 1 distinct, all others equal and smaller */
    SPARSE_TIES_AT,    /* k */
    SPARSE_TIES_ABOVE, /* k + 1 */
    SPARSE_TWO_VALUES,
    SPARSE_NEXT_BITS,    /* the bits of 1.0, plus i */
    SPARSE_HUGE,         /* just finite: to be rounded to infinity in a narrower type */
    SPARSE_FINITE_KINDS, /* those above are finite */
    SPARSE_ONE_NAN = SPARSE_FINITE_KINDS,
    SPARSE_ALL_NAN,
    SPARSE_INFINITIES, /* some of both signs, and a NaN */
    SPARSE_KINDS
};

const char *sparse_kind_name(int kind);
void sparse_fill(unsigned char *data, trib_dtype dtype, size_t n, int kind, uint32_t k);
double sparse_normal(void);

/* ---------------------------------------------------------------------------------- arithmetic */

/* x rounded to f32 if that is the type. */
double sparse_rounded(double x, trib_dtype dtype);
/* What is to be rounded for an entry of `dtype`: nothing finite is beyond bf16's largest number. */
double sparse_entry(double x, trib_dtype dtype);
uint64_t sparse_key(const unsigned char *element, trib_dtype dtype);
/* The k largest keys above `above` among n, lower positions first: positions, ascending. */
uint32_t sparse_largest(const uint64_t *keys, size_t n, uint64_t above, uint32_t k,
                        uint32_t *positions);
/* How many magnitudes of acc are above. */
uint32_t sparse_count_above(const unsigned char *data, size_t n, trib_dtype dtype, uint64_t above);
bool sparse_is_finite(const unsigned char *element, trib_dtype dtype);
/* In the image: acc of [first, first + count), after its velocity if that is made. */
void sparse_make_acc(struct sparse_rig *rig, const struct sparse_state *state, size_t first,
                     size_t count);
/* 0 + values of the lists at each index from `first`, in order; `present` (may be NULL) says where
 * there are any. */
void sparse_sums(const struct sparse_rig *rig, const struct sparse_list *lists, int32_t n,
                 size_t first, size_t count, double *sums, bool *present);

/* -------------------------------------------------------------------------------------- parts */

void sparse_select_suite(struct sparse_rig *rig);
void sparse_feedback_suite(struct sparse_rig *rig);
void sparse_threshold_suite(struct sparse_rig *rig);
void sparse_cut_suite(struct sparse_rig *rig);
void sparse_places_suite(struct sparse_rig *rig);
void sparse_merge_suite(struct sparse_rig *rig);
void sparse_result_suite(struct sparse_rig *rig);
void sparse_end_suite(struct sparse_rig *rig);
/* Words and counters in pinned memory. */
void sparse_pinned_suite(struct sparse_rig *rig);
void sparse_chunks_suite(struct sparse_rig *rig);
/* Lists that are not lists. */
void sparse_corrupt_suite(struct sparse_rig *rig);
/* n elements each. */
void sparse_select_long(struct sparse_rig *rig, size_t n);
void sparse_feedback_long(struct sparse_rig *rig, size_t n);
void sparse_end_long(struct sparse_rig *rig, size_t n);
void sparse_chunks_long(struct sparse_rig *rig, size_t n);
/* Counts above 2^24, and chunks of select's places: about 600 MB of the host's memory. */
void sparse_long_suite(const struct kernels_place *place);
/* Above 2^31: about 9 GB of the place's memory. */
void sparse_kernels_large(const struct kernels_place *place);

/* All of it. */
void sparse_kernels_suite(const struct kernels_place *place);

#endif

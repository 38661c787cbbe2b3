/* Reducers of ranks in several processes, whose buckets lie in memory that all of them reach: right averages, the
 * memory stays for the next one; where a rank cannot map it, no rank gets a reducer. */
#include "tests/children.h"
#include "tests/processes/fault.h"
#include "tests/processes/member.h"

enum { THREE = 3, MOST = 4, GRADIENTS = 5, COUNT = 700, STEPS = 6 };

/* A reducer and its gradients: where they lie if they are not views. */
struct part {
    const struct member *member;
    trib_reducer *reducer;
    uint32_t flags;
    float own[GRADIENTS][COUNT];
    float *gradients[GRADIENTS];
};

static int mapped(const struct member *m)
{
    return symmetric_mappings() / m->size;
}

static uint64_t peer_bytes(const struct member *m)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    CHECK_OK(trib_comm_memory(&memory, m->comm));
    return memory.peer_bytes;
}

static trib_status create_with(struct part *part, const struct member *m,
                               const trib_reducer_options *options)
{
    trib_tensor tensors[GRADIENTS];
    *part = (struct part){.member = m, .flags = options->flags};
    for (int i = 0; i < GRADIENTS; i++) {
        part->gradients[i] = part->own[i];
        tensors[i] = (trib_tensor){.data = part->own[i], .count = COUNT, .dtype = TRIB_F32};
    }
    return trib_reducer_create(&part->reducer, m->comm, tensors, GRADIENTS, options);
}

static trib_status create(struct part *part, const struct member *m, uint32_t flags)
{
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.flags = flags | TRIB_REDUCER_SUM;
    options.bucket_bytes = 2 * COUNT * sizeof(float);
    options.first_bytes = 1;
    return create_with(part, m, &options);
}

static void find_views(struct part *part)
{
    for (int i = 0; i < GRADIENTS && (part->flags & TRIB_REDUCER_VIEWS) != 0; i++) {
        void *view = NULL;
        CHECK_OK(trib_reducer_view(&view, part->reducer, (size_t)i));
        part->gradients[i] = view;
    }
}

static float element(int rank, int step, int gradient, int i)
{
    return (float)(rank + 1) * (float)(step + 3 * gradient + i % 11);
}

static bool is_right(const struct part *part, int step)
{
    const int size = part->member->size;
    for (int g = 0; g < GRADIENTS; g++)
        for (int i = 0; i < COUNT; i++) {
            const float right = element(0, step, g, i) * (float)(size * (size + 1) / 2);
            if (!CHECK_MSG(part->gradients[g][i] == right,
                           "step %d: %d of gradient %d is %g, not %g", step, i, g,
                           (double)part->gradients[g][i], (double)right))
                return false;
        }
    return true;
}

/* The last gradient first. */
static void step(struct part *part, int number)
{
    const struct member *m = part->member;
    find_views(part);
    for (int g = GRADIENTS - 1; g >= 0; g--) {
        for (int i = 0; i < COUNT; i++)
            part->gradients[g][i] = element(m->rank, number, g, i);
        CHECK_OK(trib_reducer_ready(part->reducer, (size_t)g, m->stream));
    }
    CHECK_OK(trib_reducer_finish(part->reducer, m->stream));
    member_wait(m);
    find_views(part); /* which the first step with LEARN_ORDER moves */
    CHECK(is_right(part, number));
}

/* ---------------------------------------------------------------------------------------- well */

enum { WANTED = 12345 }; /* by the backend, which serves such buckets with it */

static void averages(int index, int n, void *argument)
{
    const uint32_t *flags = argument;
    static struct part part, next;
    struct member m;
    symmetric_want(WANTED);
    if (!member_begin(&m, index, n, NULL) || !CHECK_OK(create(&part, &m, *flags)))
        return;
    const uint64_t bytes = peer_bytes(&m);
    find_views(&part);
    if ((*flags & TRIB_REDUCER_VIEWS) != 0) /* one of these is where the memory begins */
        for (int i = 0; i < GRADIENTS; i++)
            CHECK_STATUS(trib_symmetric_free(m.comm, part.gradients[i]), TRIB_ERR_INVALID_ARGUMENT);
    CHECK(symmetric_taken(m.comm));
    CHECK(mapped(&m) == 2 && bytes >= GRADIENTS * COUNT * sizeof(float));
    for (int i = 0; i < STEPS; i++)
        step(&part, i);
    CHECK(symmetric_calls() == STEPS * (int)trib_reducer_buckets(part.reducer));
    CHECK_OK(trib_reducer_destroy(part.reducer));
    CHECK(peer_bytes(&m) == bytes); /* to spare */
    if (CHECK_OK(create(&next, &m, *flags))) {
        CHECK(mapped(&m) == 2 && peer_bytes(&m) == bytes);
        step(&next, STEPS);
        CHECK_OK(trib_reducer_destroy(next.reducer));
    }
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* In buckets of the caller's, of one gradient each. */
static trib_status create_in_place(struct part *part, const struct member *m)
{
    static const uint64_t buckets[GRADIENTS] = {1, 1, 1, 1, 1};
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.flags = TRIB_REDUCER_SUM;
    options.buckets = buckets;
    options.nbuckets = GRADIENTS;
    return create_with(part, m, &options);
}

/* Two at once have each their own; with TWINS twice as much. Gradients in place need none. */
static void two_at_once(int index, int n, void *nothing)
{
    static struct part parts[3];
    struct member m;
    (void)nothing;
    if (!member_begin(&m, index, n, NULL) || !CHECK_OK(create(&parts[0], &m, TRIB_REDUCER_VIEWS)))
        return;
    const uint64_t one = peer_bytes(&m);
    if (CHECK_OK(create_in_place(&parts[2], &m))) {
        CHECK(mapped(&m) == 1);
        step(&parts[2], 1);
        CHECK_OK(trib_reducer_destroy(parts[2].reducer));
    }
    CHECK_OK(create(&parts[1], &m, TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS));
    CHECK(mapped(&m) == 2 && peer_bytes(&m) - one > one);
    for (int i = 0; i < STEPS; i++)
        step(&parts[i % 2], i);
    for (int i = 0; i < 2; i++)
        CHECK_OK(trib_reducer_destroy(parts[index == 0 ? 1 - i : i].reducer));
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* Also beside what the backend wants. */
static void takes_what_a_state_left(int index, int n, void *nothing)
{
    enum { ELEMENTS = 20000, K = 4000 };
    static struct part part;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse *sparse = NULL;
    struct member m;
    (void)nothing;
    options.algorithm = "topka";
    options.flags = TRIB_SPARSE_USE_K;
    options.k = K;
    symmetric_want(WANTED);
    if (!member_begin(&m, index, n, NULL) ||
        !CHECK_OK(trib_sparse_create(&sparse, m.comm, ELEMENTS, TRIB_F32, &options)))
        return;
    CHECK(mapped(&m) == 2 && symmetric_taken(m.comm));
    CHECK_OK(trib_sparse_destroy(sparse));
    if (CHECK_OK(create(&part, &m, 0))) {
        CHECK(mapped(&m) == 2);
        step(&part, 1);
        CHECK_OK(trib_reducer_destroy(part.reducer));
    }
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* Their buckets are gradients of the states, which nobody else reads. */
static void sparse_ones_need_none(int index, int n, void *nothing)
{
    static float data[COUNT];
    const trib_tensor tensor = {.data = data, .count = COUNT, .dtype = TRIB_F32};
    trib_sparse_options sparse = TRIB_SPARSE_OPTIONS_INIT;
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    trib_reducer *reducer = NULL;
    struct member m;
    (void)nothing;
    sparse.algorithm = "gtopk";
    options.sparse = &sparse;
    if (!member_begin(&m, index, n, NULL) ||
        !CHECK_OK(trib_reducer_create(&reducer, m.comm, &tensor, 1, &options)))
        return;
    CHECK(symmetric_mappings() == 0);
    CHECK_OK(trib_reducer_destroy(reducer));
    member_end(&m);
}

static void is_aborted(int index, int n, void *met)
{
    static struct part part;
    struct member m;
    trib_abort *handle = NULL;
    if (!member_begin(&m, index, n, NULL) || !CHECK_OK(create(&part, &m, 0)))
        return;
    step(&part, 1);
    children_meet(met, n);
    if (CHECK_OK(trib_comm_abort_handle(&handle, m.comm)))
        CHECK_OK(trib_abort_raise(handle, "a test"));
    trib_abort_release(handle);
    CHECK_OK(trib_reducer_destroy(part.reducer));
    CHECK(mapped(&m) == 1);
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* --------------------------------------------------------------------------- a step that fails */

static void meets_fault(int index, int n, void *argument)
{
    const struct fault *fault = argument;
    static struct part part;
    struct member m;
    if (!member_begin(&m, index, n, NULL))
        return;
    fault_set(fault, index);
    fault_check(fault, index, create(&part, &m, 0));
    CHECK(part.reducer == NULL && symmetric_mappings() == 0);
    if (!fault->kills && CHECK_OK(create(&part, &m, 0))) {
        step(&part, 1);
        CHECK_OK(trib_reducer_destroy(part.reducer));
    }
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* Without what the backend wants: by its library. */
static void does_without(int index, int n, void *nothing)
{
    static struct part part;
    struct member m;
    (void)nothing;
    symmetric_want(WANTED);
    if (index == FAULT_RANK)
        symmetric_set_fault(SYMMETRIC_TAKE, false);
    if (!member_begin(&m, index, n, NULL))
        return;
    if (CHECK_OK(create(&part, &m, TRIB_REDUCER_VIEWS))) {
        CHECK(!symmetric_taken(m.comm) && mapped(&m) == 1);
        step(&part, 1);
        CHECK_OK(trib_reducer_destroy(part.reducer));
    }
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* ----------------------------------------------------------------------------------- the cases */

static void three(const char *what, void (*body)(int index, int n, void *argument), void *argument)
{
    check_begin("%s", what);
    processes_check(THREE, MEMBER_DEADLINE_MS, body, argument);
    check_end();
}

int main(void)
{
    static const uint32_t flags[] = {0, TRIB_REDUCER_VIEWS, TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS,
                                     TRIB_REDUCER_LEARN_ORDER,
                                     TRIB_REDUCER_VIEWS | TRIB_REDUCER_LEARN_ORDER};
    _Atomic int *met = children_share(sizeof *met);
    for (int n = 2; n <= MOST; n++)
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
            uint32_t of = flags[i];
            check_begin("%d processes, flags %u", n, (unsigned)of);
            processes_check(n, MEMBER_DEADLINE_MS, averages, &of);
            check_end();
        }
    three("two reducers at once", two_at_once, NULL);
    three("what a sparse state left", takes_what_a_state_left, NULL);
    three("the backend does without", does_without, NULL);
    three("a sparse reducer", sparse_ones_need_none, NULL);
    three("an abort", is_aborted, (void *)met);
    children_unshare((void *)met, sizeof *met);
    fault_cases("a creation", SYMMETRIC_MAP, meets_fault, NULL);
    return check_finish("near_reducer_test");
}

/* Sparse states whose packets stay where they were made, of ranks in several processes: right results, whatever
 * k becomes; the memory stays for the next state; where a rank cannot map it, no rank gets a state, or another k. */
#include "tests/children.h"
#include "tests/processes/fault.h"
#include "tests/processes/member.h"

enum { THREE = 3, MOST = 4, COUNT = 9000, SMALL = 40, LARGE = 3000, STEPS = 20, ROW = 40 };

static uint64_t mapped(const struct member *m)
{
    return (uint64_t)symmetric_mappings() / (uint64_t)m->size;
}

static trib_sparse_options options_of(uint64_t k)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.algorithm = "topka";
    options.flags = TRIB_SPARSE_USE_K;
    options.k = k;
    return options;
}

static trib_status create(trib_sparse **out, const struct member *m, uint64_t k)
{
    const trib_sparse_options options = options_of(k);
    return trib_sparse_create(out, m->comm, COUNT, TRIB_F32, &options);
}

static uint64_t sparse_bytes(const struct member *m, int k)
{
    const trib_sparse_options options = options_of((uint64_t)k);
    uint64_t bytes = 0;
    CHECK_OK(trib_sparse_bytes(&bytes, m->comm, COUNT, TRIB_F32, &options));
    return bytes;
}

static trib_memory memory_of(const struct member *m)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    CHECK_OK(trib_comm_memory(&memory, m->comm));
    return memory;
}

/* Each rank sends `k` elements, some of which the others send, too; nothing stays. */
static float element(int rank, int k, int step, int i)
{
    const int place = 7 * step % (COUNT - 2 * MOST * LARGE / 8), at = i - place - rank * k / 8;
    return at >= 0 && at < k ? (float)(i + step + rank) : 0;
}

static bool is_right(const struct member *m, int k, int step, const float *result)
{
    for (int i = 0; i < COUNT; i++) {
        float right = 0;
        for (int rank = 0; rank < m->size; rank++)
            right += element(rank, k, step, i);
        if (!CHECK_MSG(result[i] == right, "step %d, k %d: element %d is %g, not %g", step, k, i,
                       (double)result[i], (double)right))
            return false;
    }
    return true;
}

/* `n` calls in a row, of which nobody waits for one before the next; then all of them are looked at. */
static void check_row(const struct member *m, trib_sparse *sparse, int k, int step, int n)
{
    static float gradients[ROW][COUNT], results[ROW][COUNT];
    for (int c = 0; c < n; c++)
        for (int i = 0; i < COUNT; i++)
            gradients[c][i] = element(m->rank, k, step + c, i);
    for (int c = 0; c < n; c++)
        if (!CHECK_OK(trib_sparse_allreduce(sparse, gradients[c], results[c], m->stream)))
            return;
    member_wait(m);
    for (int c = 0; c < n; c++)
        if (!is_right(m, k, step + c, results[c]))
            return;
}

static void check_sums(const struct member *m, trib_sparse *sparse, int k, int step)
{
    check_row(m, sparse, k, step, 1);
}

/* ---------------------------------------------------------------------------------------- well */

static void changes_k(int index, int n, void *nothing)
{
    static const int ks[] = {SMALL, LARGE, SMALL + 1};
    struct member m;
    trib_sparse *sparse = NULL;
    (void)nothing;
    if (!member_begin(&m, index, n, NULL) || !CHECK_OK(create(&sparse, &m, SMALL)))
        return;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(trib_sparse_set_k(sparse, (uint64_t)ks[i]));
        CHECK(mapped(&m) == (i == 0 ? 1 : 2)); /* what was too small is to spare */
        for (int step = 0; step < STEPS; step++)
            check_sums(&m, sparse, ks[i], step);
        for (int step = 0; step < STEPS; step++)
            check_row(&m, sparse, ks[i], step, ROW);
    }
    CHECK_OK(trib_sparse_destroy(sparse));
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* What trib_sparse_bytes says is taken, a part of it where other ranks read, and that part is used again. */
static void takes_memory(int index, int n, void *nothing)
{
    struct member m;
    trib_sparse *states[3] = {NULL};
    (void)nothing;
    if (!member_begin(&m, index, n, NULL) || !CHECK_OK(create(&states[0], &m, LARGE)))
        return;
    const trib_memory first = memory_of(&m);
    CHECK(first.peer_bytes != 0 &&
          first.sparse_bytes + first.peer_bytes == sparse_bytes(&m, LARGE));
    CHECK_OK(create(&states[1], &m, SMALL));
    const trib_memory both = memory_of(&m);
    CHECK(both.sparse_bytes + both.peer_bytes == sparse_bytes(&m, LARGE) + sparse_bytes(&m, SMALL));
    for (int i = 0; i < 2; i++) /* on one rank in another order */
        CHECK_OK(trib_sparse_destroy(states[index == 0 ? 1 - i : i]));
    const trib_memory none = memory_of(&m);
    CHECK(none.sparse_bytes == 0 && none.peer_bytes == both.peer_bytes);
    for (int i = 0; i < 2; i++) { /* the smaller one first: it takes the smaller memory */
        CHECK_OK(create(&states[i], &m, i == 0 ? SMALL : LARGE));
        check_sums(&m, states[i], i == 0 ? SMALL : LARGE, i);
        CHECK(mapped(&m) == 2 && memory_of(&m).peer_bytes == both.peer_bytes);
    }
    CHECK_OK(create(&states[2], &m, SMALL)); /* nothing is left for it */
    CHECK(mapped(&m) == 3);
    for (int i = 0; i < 3; i++)
        check_sums(&m, states[i], i == 1 ? LARGE : SMALL, 3 + i);
    for (int i = 0; i < 3; i++)
        CHECK_OK(trib_sparse_destroy(states[i]));
    CHECK_OK(create(&states[0], &m, LARGE + 1)); /* not in the smaller ones */
    CHECK(mapped(&m) == 4);
    check_sums(&m, states[0], LARGE, 7);
    CHECK_OK(trib_sparse_destroy(states[0]));
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* Rank 0 destroys its state while the call of it is still queued: what that reads and writes is nobody else's. */
static void is_destroyed_early(int index, int n, void *met)
{
    static float data[COUNT];
    struct member m;
    trib_sparse *sparse = NULL, *next = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    options.close_timeout_ms = 50;
    if (!member_begin(&m, index, n, &options) || !CHECK_OK(create(&sparse, &m, SMALL)))
        return;
    if (index != 0)
        children_meet(met, n);
    CHECK_OK(trib_sparse_allreduce(sparse, data, data, m.stream));
    CHECK_STATUS(trib_sparse_destroy(sparse), index == 0 ? TRIB_ERR_TIMEOUT : TRIB_OK);
    if (index == 0)
        children_meet(met, n);
    for (int i = 0; i < 3; i++) /* what the others have of the first is not in the way */
        if (CHECK_OK(create(&next, &m, SMALL))) {
            CHECK(mapped(&m) == 2);
            check_sums(&m, next, SMALL, i);
            CHECK_OK(trib_sparse_destroy(next));
        }
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* With the memory of states that are there no more. */
static void is_aborted(int index, int n, void *met)
{
    struct member m;
    trib_sparse *sparse = NULL;
    trib_abort *handle = NULL;
    if (!member_begin(&m, index, n, NULL) || !CHECK_OK(create(&sparse, &m, SMALL)))
        return;
    check_sums(&m, sparse, SMALL, 1);
    children_meet(met, n);
    if (CHECK_OK(trib_comm_abort_handle(&handle, m.comm)))
        CHECK_OK(trib_abort_raise(handle, "a test"));
    trib_abort_release(handle);
    CHECK_OK(trib_sparse_destroy(sparse));
    CHECK(mapped(&m) == 1);
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* --------------------------------------------------------------------------- a step that fails */

/* A creation does, or a larger k, after which the state goes on with the smaller one. */
static void meets_fault(int index, int n, void *argument)
{
    const struct fault *fault = argument;
    const bool later = *(const bool *)fault->argument;
    struct member m;
    trib_sparse *sparse = NULL;
    if (!member_begin(&m, index, n, NULL) || (later && !CHECK_OK(create(&sparse, &m, SMALL))))
        return;
    fault_set(fault, index);
    fault_check(fault, index,
                later ? trib_sparse_set_k(sparse, LARGE) : create(&sparse, &m, SMALL));
    CHECK((sparse != NULL) == later && mapped(&m) == later);
    if (!fault->kills && (later || CHECK_OK(create(&sparse, &m, SMALL)))) {
        CHECK(mapped(&m) == 1);
        check_sums(&m, sparse, SMALL, 1);
        CHECK_OK(trib_sparse_set_k(sparse, LARGE));
        check_sums(&m, sparse, LARGE, 2);
    }
    if (sparse != NULL)
        CHECK_OK(trib_sparse_destroy(sparse));
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* ----------------------------------------------------------------------------------- the cases */

static void meeting(const char *what, void (*body)(int index, int n, void *met))
{
    _Atomic int *met = children_share(sizeof *met);
    check_begin("%s", what);
    processes_check(THREE, MEMBER_DEADLINE_MS, body, (void *)met);
    check_end();
    children_unshare((void *)met, sizeof *met);
}

int main(void)
{
    for (int n = 2; n <= MOST; n++) {
        check_begin("%d processes change k", n);
        processes_check(n, MEMBER_DEADLINE_MS, changes_k, NULL);
        check_end();
        check_begin("%d processes use the memory of former states", n);
        processes_check(n, MEMBER_DEADLINE_MS, takes_memory, NULL);
        check_end();
    }
    meeting("an abort", is_aborted);
    meeting("a state is destroyed too early", is_destroyed_early);
    fault_cases("a creation", SYMMETRIC_MAP, meets_fault, &(bool){false});
    fault_cases("a larger k", SYMMETRIC_MAP, meets_fault, &(bool){true});
    return check_finish("near_test");
}

/* Symmetric memory of ranks in several processes: all of them have it, and reach each other's, or none
 * has it, whatever one of them cannot do or passes, and whoever is lost meanwhile. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>

#include "csrc/core/communicator.h"
#include "tests/processes/fault.h"
#include "tests/processes/member.h"

enum { THREE = 3, MOST = 8, BYTES = 5000, WANTED = 4096 };

static void check_works(const struct member *m)
{
    float one = 1;
    member_call(m, &one);
    member_wait(m);
    CHECK_MSG(one == (float)m->size, "%g", (double)one);
}

static unsigned char *of_rank(const struct member *m, const void *data, size_t bytes, int rank)
{
    void *found = NULL;
    CHECK_OK(trib_symmetric_query(&found, m->comm, data, bytes, rank));
    return found;
}

/* Each rank writes a part of everybody's memory; then all of it is there. */
static void check_reaches(const struct member *m, unsigned char *data)
{
    for (int rank = 0; rank < m->size; rank++) {
        unsigned char *there = of_rank(m, data + 100 * m->rank, 100, rank);
        if (!CHECK(there != NULL) || !CHECK((there == data + 100 * m->rank) == (rank == m->rank)))
            return;
        memset(there, 10 * rank + m->rank, 100);
    }
    check_works(m); /* a barrier */
    for (int i = 0; i < 100 * m->size; i++)
        if (!CHECK_MSG(data[i] == 10 * m->rank + i / 100, "byte %d is %d", i, data[i]))
            return;
    check_works(m);
}

static uint64_t mapped(const struct member *m)
{
    return (uint64_t)symmetric_mappings() / (uint64_t)m->size;
}

/* ---------------------------------------------------------------------------------------- well */

static void reach(int index, int n, void *nothing)
{
    struct member m;
    void *first = NULL, *second = NULL;
    (void)nothing;
    symmetric_want(WANTED);
    if (!member_begin(&m, index, n, NULL))
        return;
    CHECK(symmetric_taken(m.comm) && mapped(&m) == 1);
    if (!CHECK_OK(trib_symmetric_alloc(&first, m.comm, BYTES)) ||
        !CHECK_OK(trib_symmetric_alloc(&second, m.comm, 2 * BYTES)))
        return;
    CHECK(mapped(&m) == 3);
    check_reaches(&m, first);
    check_reaches(&m, second);
    CHECK(of_rank(&m, first, BYTES + 1, index) == NULL);
    CHECK_OK(trib_symmetric_free(m.comm, first));
    CHECK(mapped(&m) == 2 && of_rank(&m, first, 1, index) == NULL);
    check_reaches(&m, second);
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

static void well(int n)
{
    check_begin("%d processes have symmetric memory", n);
    processes_check(n, MEMBER_DEADLINE_MS, reach, NULL);
    check_end();
}

/* ------------------------------------------------------------------------------------ mistakes */

static void differ(int index, int n, void *nothing)
{
    struct member m;
    void *data = NULL;
    const bool last = index == n - 1;
    (void)nothing;
    if (!member_begin(&m, index, n, NULL))
        return;
    CHECK_STATUS(trib_symmetric_alloc(&data, m.comm, last ? BYTES : BYTES + 1), TRIB_ERR_MISMATCH);
    CHECK_STATUS(trib_symmetric_alloc(&data, m.comm, last ? 0 : BYTES),
                 last ? TRIB_ERR_INVALID_ARGUMENT : TRIB_ERR_MISMATCH);
    CHECK(data == NULL && symmetric_mappings() == 0);
    if (CHECK_OK(trib_symmetric_alloc(&data, m.comm, BYTES)))
        check_reaches(&m, data);
    CHECK_STATUS(trib_symmetric_free(m.comm, last ? NULL : data),
                 last ? TRIB_ERR_INVALID_ARGUMENT : TRIB_ERR_MISMATCH);
    check_reaches(&m, data);
    member_end(&m);
}

/* ------------------------------------------------------------------------------------ not at all */

static void refused(const struct member *m)
{
    void *data = NULL;
    CHECK_STATUS(trib_symmetric_alloc(&data, m->comm, BYTES), TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("side channel");
    check_works(m);
}

static void with_threads(int thread, int threads, void *index)
{
    struct member m;
    if (!member_begin(&m, *(const int *)index * threads + thread, THREE, NULL))
        return;
    refused(&m);
    member_end(&m);
}

/* Ranks 0 and 1 in one process, and 2 in another. */
static void of_two_processes(int index, int n, void *nothing)
{
    struct member m;
    (void)n;
    (void)nothing;
    if (index == 0) {
        check_ranks(2, with_threads, &index);
    } else if (member_begin(&m, 2, THREE, NULL)) {
        refused(&m);
        member_end(&m);
    }
}

static void without_side_channel(int index, int n, void *nothing)
{
    struct member m;
    trib_options options = TRIB_OPTIONS_INIT;
    (void)nothing;
    options.flags = TRIB_NO_SIDE_CHANNEL;
    if (!member_begin(&m, index, n, &options))
        return;
    refused(&m);
    member_end(&m);
}

/* --------------------------------------------------------------------------- a step that fails */

static void meets_fault(int index, int n, void *argument)
{
    const struct fault *fault = argument;
    struct member m;
    void *data = NULL;
    if (!member_begin(&m, index, n, NULL))
        return;
    fault_set(fault, index);
    fault_check(fault, index, trib_symmetric_alloc(&data, m.comm, BYTES));
    CHECK(mapped(&m) == 0 && data == NULL);
    if (!fault->kills && CHECK_OK(trib_symmetric_alloc(&data, m.comm, BYTES)))
        check_reaches(&m, data);
    member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* Of what the backend wants for itself, while the communicator is made: without that it works all the same. */
static void brings_fault(int index, int n, void *argument)
{
    const struct fault *fault = argument;
    const trib_id id = processes_id(0);
    struct member m;
    void *data = NULL;
    symmetric_want(WANTED);
    if (!member_prepare(&m, index, n, index))
        return;
    fault_set(fault, index);
    const trib_status status = trib_comm_create(&m.comm, &id, index, n, index, NULL);
    if (fault->kills)
        fault_check(fault, index, status);
    else if (CHECK_OK(status) && CHECK(!symmetric_taken(m.comm)) &&
             CHECK_OK(trib_symmetric_alloc(&data, m.comm, BYTES)))
        check_reaches(&m, data);
    if (m.comm != NULL)
        member_end(&m);
    CHECK(symmetric_mappings() == 0);
}

/* ----------------------------------------------------------------------------------- the cases */

int main(void)
{
    for (int n = 2; n <= MOST; n *= 2)
        well(n);
    check_begin("ranks pass different arguments");
    processes_check(THREE, MEMBER_DEADLINE_MS, differ, NULL);
    check_end();
    check_begin("no symmetric memory of two ranks in a process");
    processes_check(2, MEMBER_DEADLINE_MS, of_two_processes, NULL);
    check_end();
    check_begin("no symmetric memory without a side channel");
    processes_check(THREE, MEMBER_DEADLINE_MS, without_side_channel, NULL);
    check_end();
    fault_cases("an allocation", SYMMETRIC_MAP, meets_fault, NULL);
    fault_cases("the backend's allocation", SYMMETRIC_BEGIN, brings_fault, NULL);
    return check_finish("symmetric_test");
}

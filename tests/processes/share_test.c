/* Processes share memory when their ranks make a communicator: all of them, or none, whatever one of
 * them cannot do, and whoever is lost meanwhile. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "csrc/core/communicator.h"
#include "csrc/core/remote_ask.h"
#include "tests/process.h"
#include "tests/processes/member.h"
#include "tests/processes/share.h"

enum {
    MOST = 8, /* ranks */
    THREE = 3,
    SOON_MS = 1000,
    PATIENT_MS = 20000, /* whatever ends, does within this time */
    HURRIED_MS = 2000   /* timeout_ms of a creation that does not end well */
};

/* ------------------------------------------------------------------------------------ wrapped */

/* How this process sends descriptors. */
static enum { WELL, TWICE, WITH_ANOTHER_TAG, NOT_TO_LAST } sending;
/* Where the last one went. */
static struct tri_peers *last_peers;
static uint64_t last_tag;

trib_status __real_tri_peers_send_fd(struct tri_peers *peers, int32_t rank, int fd, uint64_t tag);
trib_status __wrap_tri_peers_send_fd(struct tri_peers *peers, int32_t rank, int fd, uint64_t tag);

static trib_status send_null(int32_t rank, uint64_t tag)
{
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const trib_status status = __real_tri_peers_send_fd(last_peers, rank, null, tag);
    (void)close(null);
    return status;
}

trib_status __wrap_tri_peers_send_fd(struct tri_peers *peers, int32_t rank, int fd, uint64_t tag)
{
    last_peers = peers;
    last_tag = tag;
    if (sending == NOT_TO_LAST && rank == THREE - 1)
        return TRIB_OK;
    if (sending == TWICE)
        CHECK_OK(__real_tri_peers_send_fd(peers, rank, fd, tag));
    TRI_TRY(__real_tri_peers_send_fd(peers, rank, fd, tag));
    if (sending == WITH_ANOTHER_TAG)
        CHECK_OK(send_null(rank, tag - 1));
    return TRIB_OK;
}

/* The ranks are on two hosts, if this is set in all processes. */
static bool apart;

bool __real_tri_peer_same_unix(const struct tri_peer_address *a, const struct tri_peer_address *b);
bool __wrap_tri_peer_same_unix(const struct tri_peer_address *a, const struct tri_peer_address *b);

bool __wrap_tri_peer_same_unix(const struct tri_peer_address *a, const struct tri_peer_address *b)
{
    return __real_tri_peer_same_unix(a, b) && (!apart || (a->rank == 1) == (b->rank == 1));
}

/* ----------------------------------------------------------------------------------------- log */

/* The lines of this process that say that it goes without. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two below */
static char line[1024];
static int lines;

static void take_line(void *nothing, int32_t level, const char *text)
{
    (void)nothing;
    if (strstr(text, "the ranks share no memory across processes") == NULL)
        return;
    CHECK(level == TRIB_LOG_INFO);
    pthread_mutex_lock(&lock);
    (void)snprintf(line, sizeof line, "%s", text);
    lines++;
    pthread_mutex_unlock(&lock);
}

static void listen_to_log(void)
{
    CHECK_OK(trib_log_set(take_line, NULL, TRIB_LOG_INFO));
}

/* Has it said so once, in these words? NULL: has it said nothing? */
static void check_log(const char *words)
{
    pthread_mutex_lock(&lock);
    CHECK_MSG(lines == (words != NULL), "%d lines", lines);
    CHECK_MSG(words == NULL || strstr(line, words) != NULL, "\"%s\" is not in %s",
              words == NULL ? "" : words, line);
    lines = 0;
    pthread_mutex_unlock(&lock);
}

/* -------------------------------------------------------------------------------------- checks */

static void check_works(const struct member *m)
{
    float one = 1;
    member_call(m, &one);
    member_wait(m);
    CHECK_MSG(one == (float)m->size, "%g", (double)one);
}

/* What core says that the communicator holds, and the device. */
static void check_counted(const struct member *m, uint64_t bytes)
{
    trib_memory of = TRIB_MEMORY_INIT;
    CHECK_OK(trib_comm_memory(&of, m->comm));
    CHECK_MSG(of.peer_bytes == bytes && of.peer_peak_bytes == bytes, "%llu bytes",
              (unsigned long long)of.peer_bytes);
}

static void check_without(const struct member *m)
{
    CHECK(share_words(m->comm, m->rank) == NULL && share_mappings() == 0);
    check_counted(m, 0);
    check_works(m);
}

/* Each rank writes into everybody's memory. Nobody writes again before all have read. */
static void check_shared(const struct member *m)
{
    static _Atomic uint32_t before;
    const uint32_t value = atomic_fetch_add(&before, 1) * MOST + (uint32_t)m->rank;
    for (int rank = 0; rank < m->size; rank++) {
        _Atomic uint32_t *words = share_words(m->comm, rank);
        if (!CHECK(words != NULL))
            return;
        atomic_store(&words[m->rank], value);
    }
    check_counted(m, share_bytes(m->size));
    check_works(m);
    for (int rank = 0; rank < m->size; rank++)
        CHECK(share_words(m->comm, m->rank)[rank] == value - (uint32_t)m->rank + (uint32_t)rank);
    check_works(m);
}

/* ---------------------------------------------------------------------------------------- well */

static void all_share(int index, int n, void *nothing)
{
    struct member m;
    trib_memory of = TRIB_MEMORY_INIT;
    (void)nothing;
    listen_to_log();
    if (!member_begin(&m, index, n, NULL))
        return;
    for (int step = 0; step < SHARE_STEPS; step++)
        CHECK(share_count((enum share_step)step) == 1);
    CHECK(share_mappings() == n);
    check_shared(&m);
    CHECK_OK(trib_comm_destroy(m.comm));
    CHECK(share_dropped() == 0 && share_mappings() == 0);
    CHECK_OK(trib_device_memory(&of, m.device));
    CHECK(of.peer_bytes == 0);
    CHECK_OK(trib_stream_destroy(m.device, m.stream));
    check_log(NULL);
}

static void well(int n)
{
    check_begin("%d processes share memory", n);
    processes_check(n, MEMBER_DEADLINE_MS, all_share, NULL);
    check_end();
}

/* Into the child of all ranks, reversed; then one that goes on without nobody. Each has its own. */
static void share_anew(int index, int n, void *nothing)
{
    struct member m, child, next;
    (void)nothing;
    if (!member_begin(&m, index, n, NULL))
        return;
    next = child = m;
    child.rank = n - 1 - index;
    if (!CHECK_OK(trib_comm_split(&child.comm, m.comm, 0, -index)))
        return;
    CHECK(share_words(child.comm, child.rank) != share_words(m.comm, m.rank));
    CHECK(share_mappings() == 2 * n);
    check_shared(&m);
    check_shared(&child);
    CHECK_OK(trib_comm_shrink(&next.comm, m.comm, NULL, 0, PATIENT_MS));
    CHECK_OK(trib_comm_destroy(m.comm));
    CHECK(share_mappings() == 2 * n);
    check_shared(&child);
    check_shared(&next);
    CHECK_OK(trib_comm_destroy(next.comm));
    member_end(&child);
}

/* Two of three go into a child, and one into another, which needs nothing. */
static void share_in_part(int index, int n, void *nothing)
{
    struct member m, child;
    (void)nothing;
    if (!member_begin(&m, index, n, NULL))
        return;
    child = m;
    child.rank = index / 2;
    child.size = index == 1 ? 1 : 2;
    if (!CHECK_OK(trib_comm_split(&child.comm, m.comm, index % 2, 0)))
        return;
    if (index == 1)
        check_counted(&child, 0);
    else
        check_shared(&child);
    CHECK_OK(trib_comm_destroy(m.comm));
    member_end(&child);
}

static void anew(void)
{
    check_begin("a child, and one that shrinks, share anew");
    processes_check(THREE, MEMBER_DEADLINE_MS, share_anew, NULL);
    check_end();
    check_begin("children of some ranks share anew");
    processes_check(THREE, MEMBER_DEADLINE_MS, share_in_part, NULL);
    check_end();
}

/* ----------------------------------------------------------------------------------- not at all */

static void not_offered(const struct member *m)
{
    check_without(m);
    CHECK(share_count(SHARE_OFFER) == 0 && share_dropped() == 0);
    check_log(NULL);
}

static void with_threads(int thread, int threads, void *index)
{
    struct member m;
    if (!member_begin(&m, *(const int *)index * threads + thread, THREE, NULL))
        return;
    not_offered(&m);
    member_end(&m);
}

/* Ranks 0 and 1 in one process, and 2 in another. */
static void of_two_processes(int index, int n, void *nothing)
{
    struct member m;
    (void)n;
    (void)nothing;
    listen_to_log();
    if (index == 0) {
        check_ranks(2, with_threads, &index);
    } else if (member_begin(&m, 2, THREE, NULL)) {
        not_offered(&m);
        member_end(&m);
    }
}

/* *off: the rank that wants no side channel, or -1. */
static void of_one_rank_each(int index, int n, void *off)
{
    struct member m;
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = index == *(const int *)off ? TRIB_NO_SIDE_CHANNEL : 0;
    listen_to_log();
    if (!member_begin(&m, index, n, &options))
        return;
    CHECK((m.comm->remote != NULL) == (*(const int *)off < 0));
    not_offered(&m);
    member_end(&m);
}

static void not_at_all(void)
{
    int nobody = -1, last = THREE - 1;
    check_begin("two ranks in one process share nothing");
    processes_check(2, MEMBER_DEADLINE_MS, of_two_processes, NULL);
    check_end();
    check_begin("without a side channel nothing is shared");
    processes_check(THREE, MEMBER_DEADLINE_MS, of_one_rank_each, &last);
    check_end();
    check_begin("more ranks than the backend takes share nothing");
    share_begin(THREE - 1);
    processes_check(THREE, MEMBER_DEADLINE_MS, of_one_rank_each, &nobody);
    share_begin(MOST);
    check_end();
    check_begin("ranks of two hosts share nothing");
    apart = true;
    processes_check(THREE, MEMBER_DEADLINE_MS, of_one_rank_each, &nobody);
    apart = false;
    check_end();
}

/* --------------------------------------------------------------------------- a step that fails */

struct trial {
    enum share_step step;
    enum share_fault fault;
    int who;
};

static void go_without(int index, int n, void *argument)
{
    const struct trial *trial = argument;
    struct member m;
    char words[128];
    listen_to_log();
    if (index == trial->who)
        share_set_fault(trial->step, SHARE_FAILS);
    if (!member_begin(&m, index, n, NULL))
        return;
    for (int step = 0; step < SHARE_STEPS; step++)
        CHECK(share_count((enum share_step)step) == ((enum share_step)step <= trial->step));
    CHECK(share_dropped() == 1);
    if (index == trial->who)
        (void)snprintf(words, sizeof words, "trib_comm_create on rank %d: the ranks share ", index);
    else
        (void)snprintf(words, sizeof words, "another rank could not: rank %d (process %ld on ",
                       trial->who, (long)processes_pid(trial->who));
    const bool own = index == trial->who;
    CHECK_MSG(!own || strstr(line, words) != NULL, "%s", line);
    if (own)
        (void)snprintf(words, sizeof words, ": %s fails on demand", share_names[trial->step]);
    check_log(words);
    check_without(&m);
    member_end(&m);
}

static void one_fails(void)
{
    for (int step = SHARE_OFFER; step < SHARE_USE; step++)
        for (int who = 0; who < THREE; who += THREE - 1) {
            struct trial trial = {(enum share_step)step, SHARE_FAILS, who};
            check_begin("%s fails on rank %d", share_names[step], who);
            processes_check(THREE, MEMBER_DEADLINE_MS, go_without, &trial);
            check_end();
        }
}

/* --------------------------------------------------------------------- a rank that does not come */

/* Creation fails; or the communicator ends later, if all had taken that step already. */
static trib_status create_in_vain(struct member *m, const struct trial *trial, uint32_t timeout_ms)
{
    const trib_id id = processes_id(0);
    const double start = check_now_ms();
    trib_options options = TRIB_OPTIONS_INIT;
    options.timeout_ms = timeout_ms;
    trib_status status = trib_comm_create(&m->comm, &id, m->rank, m->size, m->rank, &options);
    CHECK((status == TRIB_OK) == (m->comm != NULL));
    CHECK(status != TRIB_OK || trial->step == SHARE_USE);
    if (status == TRIB_OK && CHECK(member_fails(m, PATIENT_MS)))
        status = trib_comm_status(m->comm);
    const double took = check_now_ms() - start;
    CHECK_MSG(took < PATIENT_MS, "%.0f ms", took);
    return status;
}

/* Nothing is left. */
static void end_in_vain(struct member *m)
{
    if (m->comm != NULL)
        CHECK_OK(trib_comm_destroy(m->comm));
    CHECK(share_mappings() == 0 &&
          share_dropped() == share_count(SHARE_OFFER) - share_count(SHARE_USE));
    CHECK_OK(trib_stream_destroy(m->device, m->stream));
    check_log(NULL);
}

/* One rank has its fault, and no rank gets a communicator that goes on. */
static void fail_in_vain(const struct trial *trial, int index, int n, uint32_t timeout_ms,
                         trib_status wanted, const char *detail)
{
    struct member m;
    listen_to_log();
    if (index == trial->who)
        share_set_fault(trial->step, trial->fault);
    if (!member_prepare(&m, index, n, index))
        return;
    CHECK_STATUS(create_in_vain(&m, trial, timeout_ms), wanted);
    CHECK_DETAIL(detail);
    end_in_vain(&m);
}

static void lose(int index, int n, void *trial)
{
    fail_in_vain(trial, index, n, PATIENT_MS, TRIB_ERR_CLOSED, " was killed by signal 9 (SIGKILL)");
}

static void one_is_killed(void)
{
    for (int step = SHARE_OFFER; step < SHARE_STEPS; step++)
        for (int who = 0; who < THREE; who += THREE - 1) {
            struct trial trial = {(enum share_step)step, SHARE_IS_KILLED, who};
            check_begin("rank %d is killed in %s", who, share_names[step]);
            processes_check_killed(who, THREE, MEMBER_DEADLINE_MS, lose, &trial);
            check_end();
        }
}

/* Until its communicator ends: the others see to that. */
static void wait_in_vain(int index, int n, void *trial)
{
    fail_in_vain(trial, index, n, HURRIED_MS, TRIB_ERR_TIMEOUT, "");
}

static void one_hangs(void)
{
    for (int step = SHARE_OFFER; step < SHARE_USE; step++) {
        struct trial trial = {(enum share_step)step, SHARE_HANGS, step % 2 * (THREE - 1)};
        check_begin("rank %d hangs in %s", trial.who, share_names[step]);
        processes_check(THREE, MEMBER_DEADLINE_MS, wait_in_vain, &trial);
        check_end();
    }
}

/* ------------------------------------------------------------------------------------ an abort */

static void *abort_hanging(void *nothing)
{
    (void)nothing;
    CHECK_OK(trib_abort_raise(share_await_hanging(), "from outside"));
    return NULL;
}

/* If that is in its map, rank 2 waits for a descriptor meanwhile. */
static void end_all(int index, int n, void *argument)
{
    const struct trial *trial = argument;
    struct member m;
    pthread_t thread;
    listen_to_log();
    if (!member_prepare(&m, index, n, index))
        return;
    if (index == trial->who) {
        share_set_fault(trial->step, SHARE_HANGS);
        sending = trial->step == SHARE_MAP ? NOT_TO_LAST : WELL;
        CHECK(pthread_create(&thread, NULL, abort_hanging, NULL) == 0);
    }
    const double start = check_now_ms();
    CHECK_STATUS(create_in_vain(&m, trial, PATIENT_MS), TRIB_ERR_ABORTED);
    CHECK(check_now_ms() - start < PATIENT_MS / 4.0);
    CHECK_DETAIL("from outside");
    if (index == trial->who)
        CHECK(pthread_join(thread, NULL) == 0);
    end_in_vain(&m);
}

static void one_aborts(void)
{
    for (int step = SHARE_MAP; step <= SHARE_TRY; step++) {
        struct trial trial = {(enum share_step)step, SHARE_HANGS, 1};
        check_begin("another thread of rank 1 aborts in %s", share_names[step]);
        processes_check(THREE, MEMBER_DEADLINE_MS, end_all, &trial);
        check_end();
    }
}

/* --------------------------------------------------------------------------------- descriptors */

/* One that is on its way is open for a moment. A channel ends with either of its ranks: all must have
 * checked before one destroys what it has. */
static void check_descriptors(long before)
{
    const double end = check_now_ms() + SOON_MS;
    while (process_descriptors() != before && check_now_ms() < end)
        check_sleep_ms(1);
    const long now = process_descriptors();
    CHECK_MSG(now == before, "%ld descriptors, %ld before", now, before);
}

/* All send as *how says. */
static void send_more(int index, int n, void *how)
{
    struct member m;
    long before = 0;
    if (!member_begin(&m, index, n, NULL))
        return;
    before = process_descriptors();
    processes_meet(0, n);
    CHECK_OK(trib_comm_destroy(m.comm));
    sending = *(const int *)how;
    if (!member_join(&m, 1, NULL))
        return;
    check_shared(&m);
    check_descriptors(before);
    processes_meet(1, n);
    member_end(&m);
}

/* Wait until `rank` has read what this one has sent it. */
static void await_answer(const struct member *m, int32_t rank)
{
    struct tri_remote_rank of;
    const double end = check_now_ms() + PATIENT_MS;
    tri_remote_ask(m->comm->remote, 0);
    do {
        check_sleep_ms(1);
        tri_remote_look(m->comm->remote, rank, &of);
    } while (!of.answered && check_now_ms() < end);
    CHECK(of.answered);
}

/* Rank 0 sends nothing to rank 2; then, when nobody waits for it any more, it does. */
static void send_late(int index, int n, void *nothing)
{
    struct member m;
    char words[128];
    trib_options options = TRIB_OPTIONS_INIT;
    (void)nothing;
    options.timeout_ms = HURRIED_MS;
    listen_to_log();
    sending = index == 0 ? NOT_TO_LAST : WELL;
    if (!member_begin(&m, index, n, &options))
        return;
    (void)snprintf(words, sizeof words, "the memory of rank 0 (process %ld on ",
                   (long)processes_pid(0));
    check_log(index == 2 ? words : "another rank could not: rank 2 (process ");
    check_without(&m);
    const long before = process_descriptors();
    processes_meet(0, n);
    if (index == 0) {
        CHECK_OK(send_null(2, last_tag));
        await_answer(&m, 2);
    }
    processes_meet(1, n);
    check_descriptors(before);
    check_works(&m);
    member_end(&m);
}

/* Fifty times, well or not. */
static void share_often(int index, int n, void *nothing)
{
    struct member m, child;
    long before = 0, threads = 0;
    (void)nothing;
    if (!member_begin(&m, index, n, NULL))
        return;
    child = m;
    for (int i = 0; i < 52; i++) {
        const enum share_step step = (enum share_step)(i / 2 % SHARE_STEPS);
        const bool fails = i % 2 != 0 && step != SHARE_USE && i % n == index;
        if (fails)
            share_set_fault(step, SHARE_FAILS);
        if (!CHECK_OK(trib_comm_split(&child.comm, m.comm, 0, 0)))
            return;
        if (fails)
            share_set_fault(step, SHARE_WELL);
        CHECK((share_words(child.comm, 0) != NULL) == (i % 2 == 0 || step == SHARE_USE));
        CHECK_OK(trib_comm_destroy(child.comm));
        if (i == 1) {
            before = process_descriptors();
            threads = process_threads();
        }
    }
    CHECK_MSG(process_threads() == threads, "%ld threads, %ld before", process_threads(), threads);
    check_descriptors(before);
    CHECK(share_mappings() == n);
    processes_meet(0, n);
    member_end(&m);
}

static void descriptors(void)
{
    int how = TWICE;
    check_begin("a descriptor comes twice");
    processes_check(THREE, MEMBER_DEADLINE_MS, send_more, &how);
    check_end();
    how = WITH_ANOTHER_TAG;
    check_begin("a descriptor comes that is not wanted");
    processes_check(THREE, MEMBER_DEADLINE_MS, send_more, &how);
    check_end();
    check_begin("a descriptor comes late");
    processes_check(THREE, MEMBER_DEADLINE_MS, send_late, NULL);
    check_end();
    check_begin("fifty children, one after the other");
    processes_check(THREE, MEMBER_DEADLINE_MS, share_often, NULL);
    check_end();
}

int main(void)
{
    share_begin(MOST);
    well(2);
    well(3);
    well(MOST);
    anew();
    not_at_all();
    one_fails();
    one_is_killed();
    one_hangs();
    one_aborts();
    descriptors();
    return check_finish("share_test");
}

/* What channels between processes cost a process: one thread while there are any, no wake-up while
 * nothing happens, and nothing once they are closed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "csrc/peers/peer.h"
#include "tests/peers/crew.h"
#include "tests/process.h"

/* --------------------------------------------------------------------------------------- many times */

/* The system may show a thread for a moment after it has been joined. The thread sanitizer has
 * threads of its own. */
static void check_threads(long n)
{
#ifdef __SANITIZE_THREAD__
    (void)n;
    return;
#endif
    const double end = check_now_ms() + CREW_BOUND_MS;
    while (process_threads() != n && check_now_ms() < end)
        check_sleep_ms(1);
    CHECK_MSG(process_threads() == n, "%ld threads", process_threads());
}

static void cycles(struct member *member)
{
    struct crew *crew = member->crew;
    long descriptors = 0;
    const int n = getenv("TRIB_TEST_QUICK") == NULL ? 1000 : 200;
    for (int i = 0; i < n; i++) {
        CHECK_OK(crew_listen(member, "the id"));
        atomic_fetch_add(&crew->published, 1);
        while (atomic_load(&crew->published) < 2 * (i + 1))
            check_sleep_ms(0);
        CHECK_OK(crew_connect(member, CREW_BOUND_MS));
        check_threads(2);
        crew_close(member);
        check_threads(1);
        descriptors = i == 0 ? process_descriptors() : descriptors;
        /* Nobody writes its next address before the other has read this one. */
        atomic_fetch_add(&crew->met[0], 1);
        while (atomic_load(&crew->met[0]) < 2 * (i + 1))
            check_sleep_ms(0);
    }
    CHECK(process_descriptors() == descriptors);
    CHECK(crew_count(member, CREW_DEAD, -1) == 0);
}

/* How often the threads of this process, without the calling one, have gone to sleep. */
static long sleeps_of_others(void)
{
    long all = 0;
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads != NULL && (entry = readdir(threads)) != NULL;) {
        const int thread = atoi(entry->d_name); /* 0: a folder above */
        const long sleeps = thread == 0 || thread == (int)getpid() ? 0 : process_sleeps(thread);
        all += sleeps > 0 ? sleeps : 0; /* -1: it has ended meanwhile */
    }
    if (threads != NULL)
        (void)closedir(threads);
    return all;
}

/* While nothing happens, no thread wakes. */
static void idle(struct member *member)
{
    crew_open(member);
    crew_meet(member->crew, 0, 2);
    check_sleep_ms(50);
    const long before = sleeps_of_others();
    check_sleep_ms(1000);
    const long more = sleeps_of_others() - before;
#ifdef __SANITIZE_THREAD__ /* has threads of its own */
    (void)more;
#else
    CHECK_MSG(before > 0 && more == 0, "%ld wake-ups", more);
#endif
    crew_meet(member->crew, 1, 2);
    crew_close(member);
}

/* ---------------------------------------------------------------------------------- one process */

static _Atomic int sleeps, runs;

static void sleepy(void *context, int32_t rank, enum tri_peer_type type, const uint8_t *bytes,
                   size_t length)
{
    (void)context, (void)rank, (void)type, (void)bytes, (void)length;
    atomic_fetch_add(&runs, 1);
    atomic_store(&sleeps, 1);
    check_sleep_ms(700); /* longer than close waits for the peers */
    atomic_store(&sleeps, 0);
}

/* Rank 1 closes while its callback runs, with more to come. */
static void close_in_callback(struct member *member)
{
    uint8_t bytes[64];
    crew_fill(bytes, sizeof bytes, 0);
    CHECK_OK(crew_listen(member, "the id"));
    crew_publish(member);
    if (member->rank == 1)
        member->peers->callbacks.message = sleepy;
    CHECK_OK(crew_connect(member, CREW_BOUND_MS));
    crew_meet(member->crew, 0, 2);
    for (int i = 0; i < 20 && member->rank == 0; i++)
        CHECK_OK(tri_peers_send(member->peers, 1, TRI_PEER_SHRINK, bytes, sizeof bytes));
    if (member->rank == 1) {
        while (atomic_load(&sleeps) == 0)
            check_sleep_ms(1);
        crew_close(member);
        CHECK(atomic_load(&sleeps) == 0);
        const int before = atomic_load(&runs);
        CHECK(before == 1);
        check_sleep_ms(100);
        CHECK(atomic_load(&runs) == before);
    }
    crew_meet(member->crew, 1, 2);
    crew_close(member);
}

/* Ranks 0 and 1 share a process; rank 2, in process 1, has a channel to each. One thread serves. */
static void shared_process(struct member *member)
{
    static struct member second = {.lock = PTHREAD_MUTEX_INITIALIZER};
    uint8_t bytes[8];
    second.crew = member->crew;
    second.rank = 1;
    member->rank *= 2;
    CHECK_OK(crew_listen(member, "the id"));
    if (member->rank == 0) {
        CHECK_OK(crew_listen(&second, "the id"));
        atomic_fetch_add(&member->crew->published, 1);
    }
    crew_publish(member);
    CHECK_OK(crew_connect(member, CREW_BOUND_MS));
    if (member->rank == 0) {
        CHECK_OK(crew_connect(&second, CREW_BOUND_MS));
        check_threads(2);
        CHECK(tri_peers_way(member->peers, 1) == TRI_PEER_HERE);
        CHECK(tri_peers_way(second.peers, 0) == TRI_PEER_HERE);
        CHECK(tri_peers_way(second.peers, 2) == TRI_PEER_UNIX);
        crew_fill(bytes, sizeof bytes, 1);
        CHECK_OK(tri_peers_send(second.peers, 2, TRI_PEER_SHRINK, bytes, sizeof bytes));
        CHECK_STATUS(tri_peers_send(second.peers, 0, TRI_PEER_SHRINK, bytes, sizeof bytes),
                     TRIB_ERR_INVALID_ARGUMENT);
    } else {
        CHECK(crew_await(member, CREW_MESSAGE, 1, 1).tag == 1);
    }
    crew_meet(member->crew, 0, 2);
    crew_close(member);
    crew_close(&second);
    check_threads(1);
}

static void alone(struct member *member)
{
    crew_open(member);
    CHECK(tri_peers_way(member->peers, 0) == TRI_PEER_HERE);
    crew_close(member);
    tri_peers_close(NULL);
}

static void run(int size, int processes, uint32_t flags, void (*body)(struct member *member),
                const char *name)
{
    check_begin("%s", name);
    crew_run(size, processes, flags, body);
    check_end();
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_DFL); /* a write that raises it ends the child */
    run(2, 2, 0, cycles, "Unix sockets: many times");
    run(2, 2, TRI_PEERS_NO_UNIX, cycles, "TCP: many times");
    run(2, 2, 0, idle, "nothing happens");
    run(2, 2, 0, close_in_callback, "close while a callback runs");
    run(3, 2, 0, shared_process, "two ranks in one process");
    run(1, 1, 0, alone, "one rank");
    return check_finish("peers_life_test");
}

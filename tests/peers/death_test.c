/* The ends of processes: noticed at once, told apart from pauses, with the right rank and reason. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "csrc/peers/death.h"
#include "csrc/peers/peer.h"
#include "csrc/peers/service.h"
#include "tests/peers/crew.h"

enum { NOTICED_MS = 100, TRIES = 5 };

static const struct {
    const char *name;
    uint32_t flags;
} ways[] = {{"Unix sockets", 0},
            {"Unix sockets without pidfds", TRI_PEERS_NO_PIDFD},
            {"TCP", TRI_PEERS_NO_UNIX},
            {"TCP without pidfds", TRI_PEERS_NO_UNIX | TRI_PEERS_NO_PIDFD}};
enum { WAYS = sizeof ways / sizeof *ways };

/* "rank 2 (process 4711 on a) ", and how it died if a pidfd says that. */
static void check_text(const struct member *member, const struct crew_event *event, const char *how)
{
    const char *text = event->text;
    char start[64];
    const bool pidfd = (member->crew->flags & TRI_PEERS_NO_PIDFD) == 0;
    (void)snprintf(start, sizeof start, "rank 2 (process %d on ",
                   atomic_load(&member->crew->pids[2]));
    CHECK_MSG(strncmp(text, start, strlen(start)) == 0, "\"%s\"", text);
    CHECK_MSG(strstr(text, pidfd ? how : "its connection ended without a bye") != NULL, "\"%s\"",
              text);
}

static void wait_for_ever(void)
{
    for (;;)
        (void)pause();
}

static void raise_word(struct crew *crew, uint64_t to)
{
    for (uint64_t seen = atomic_load(&crew->word); to > seen;)
        if (atomic_compare_exchange_weak(&crew->word, &seen, to))
            return;
}

/* Rank 2 of 4 is killed. The crew's word is at first when, and at last how long the slowest rank
 * took to notice, in microseconds. */
static void killed(struct member *member)
{
    struct crew *crew = member->crew;
    atomic_store(&crew->doomed[2], 1);
    crew_open(member);
    crew_meet(crew, 0, 4);
    if (member->rank == 2)
        wait_for_ever();
    if (member->rank == 0) {
        atomic_store(&crew->word, (uint64_t)(check_now_ms() * 1e3));
        CHECK(kill(atomic_load(&crew->pids[2]), SIGKILL) == 0);
    }
    const struct crew_event event = crew_await(member, CREW_DEAD, 2, 1);
    const uint64_t took = (uint64_t)(event.at_ms * 1e3) - atomic_load(&crew->word);
    check_text(member, &event, "was killed by signal 9 (SIGKILL)");
    CHECK(tri_peers_way(member->peers, 2) == TRI_PEER_GONE);
    CHECK_STATUS(tri_peers_send(member->peers, 2, TRI_PEER_SHRINK, "", 0), TRIB_ERR_CLOSED);
    crew_meet(crew, 1, 3);
    atomic_store(&crew->word, 0);
    crew_meet(crew, 2, 3);
    raise_word(crew, took);
    CHECK(crew_count(member, CREW_DEAD, -1) == 1 && crew_count(member, CREW_LEFT, -1) == 0);
    crew_meet(crew, 3, 3);
    crew_close(member);
}

/* Other programs may have the processors: one try of several must be fast. */
static void is_noticed(const char *name, uint32_t flags)
{
    uint64_t best_us = UINT64_MAX;
    check_begin("%s: a killed rank is noticed within %d ms", name, NOTICED_MS);
    for (int i = 0; i < TRIES && best_us > NOTICED_MS * 1000; i++) {
        const uint64_t us = crew_run(4, 4, flags, killed);
        best_us = us < best_us ? us : best_us;
    }
    CHECK_MSG(best_us <= NOTICED_MS * 1000, "after %llu us", (unsigned long long)best_us);
    check_end();
}

/* Until the system has all that was sent; what it does not have yet, a death takes along. */
static void await_written(struct member *member, int rank)
{
    const double end = check_now_ms() + CREW_BOUND_MS;
    size_t queued = 1;
    while (queued > 0 && check_now_ms() < end) {
        check_sleep_ms(1);
        tri_service_lock();
        queued = member->peers->of[rank].channel->wire.queued;
        tri_service_unlock();
    }
    CHECK(queued == 0);
}

/* It ends by itself; what it sent before still arrives, also if that takes longer. */
static void exits(struct member *member)
{
    enum { SENT = 200 };
    uint8_t bytes[8];
    atomic_store(&member->crew->doomed[2], 1);
    member->slow_ms = 1;
    crew_open(member);
    crew_meet(member->crew, 0, 3);
    if (member->rank == 2) {
        for (int i = 0; i < 2 * SENT; i++) {
            crew_fill(bytes, sizeof bytes, (uint64_t)i);
            CHECK_OK(tri_peers_send(member->peers, i % 2, TRI_PEER_SHRINK, bytes, sizeof bytes));
        }
        await_written(member, 0);
        await_written(member, 1);
        _exit(3);
    }
    const struct crew_event event = crew_await(member, CREW_DEAD, 2, 1);
    check_text(member, &event, "ended with exit code 3");
    CHECK(crew_count(member, CREW_MESSAGE, 2) == SENT);
    crew_meet(member->crew, 1, 2);
    crew_close(member);
}

/* Its child lives on, and holds nothing that would hide the death. */
static void has_child(struct member *member)
{
    struct crew *crew = member->crew;
    atomic_store(&crew->doomed[2], 1);
    crew_open(member);
    if (member->rank == 2) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(5);
            wait_for_ever();
        }
        atomic_store(&crew->word, (uint64_t)child);
    }
    crew_meet(crew, 0, 3);
    if (member->rank == 2)
        wait_for_ever();
    if (member->rank == 0)
        CHECK(kill(atomic_load(&crew->pids[2]), SIGKILL) == 0);
    const double start = check_now_ms();
    (void)crew_await(member, CREW_DEAD, 2, 1);
    CHECK(check_now_ms() - start < 4000);
    crew_meet(crew, 1, 2);
    if (member->rank == 0)
        CHECK(kill((pid_t)atomic_load(&crew->word), SIGKILL) == 0);
    crew_close(member);
}

/* A child that does hold a copy of the socket: the pidfd tells, and what was sent before arrives. */
static void socket_lives_on(struct member *member)
{
    struct crew *crew = member->crew;
    uint8_t bytes[8];
    atomic_store(&crew->doomed[2], 1);
    crew_open(member);
    crew_meet(crew, 0, 3);
    if (member->rank == 2) {
        const int copies[] = {dup(member->peers->of[0].channel->wire.fd),
                              dup(member->peers->of[1].channel->wire.fd)};
        CHECK(copies[0] >= 0 && copies[1] >= 0);
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            wait_for_ever();
        }
        atomic_store(&crew->word, (uint64_t)child);
        crew_fill(bytes, sizeof bytes, 42);
        CHECK_OK(tri_peers_send(member->peers, 0, TRI_PEER_SHRINK, bytes, sizeof bytes));
        CHECK_OK(tri_peers_send(member->peers, 1, TRI_PEER_SHRINK, bytes, sizeof bytes));
        await_written(member, 0);
        await_written(member, 1);
        _exit(0);
    }
    const struct crew_event event = crew_await(member, CREW_DEAD, 2, 1);
    check_text(member, &event, "ended");
    CHECK(crew_count(member, CREW_MESSAGE, 2) == 1);
    crew_meet(crew, 1, 2);
    if (member->rank == 0)
        CHECK(kill((pid_t)atomic_load(&crew->word), SIGKILL) == 0);
    crew_close(member);
}

static void stopped(struct member *member)
{
    struct crew *crew = member->crew;
    uint8_t bytes[8];
    crew_open(member);
    crew_meet(crew, 0, 2);
    if (member->rank == 0) {
        crew_fill(bytes, sizeof bytes, 9);
        CHECK(kill(atomic_load(&crew->pids[1]), SIGSTOP) == 0);
        CHECK_OK(tri_peers_send(member->peers, 1, TRI_PEER_SHRINK, bytes, sizeof bytes));
        check_sleep_ms(500);
        CHECK(crew_count(member, CREW_DEAD, -1) == 0 && crew_count(member, CREW_LEFT, -1) == 0);
        CHECK(tri_peers_way(member->peers, 1) != TRI_PEER_GONE);
        CHECK(kill(atomic_load(&crew->pids[1]), SIGCONT) == 0);
    } else {
        CHECK(crew_await(member, CREW_MESSAGE, 0, 1).tag == 9);
    }
    crew_meet(crew, 1, 2);
    CHECK(crew_count(member, CREW_DEAD, -1) == 0);
    crew_close(member);
}

/* Rank 1 dies before it connects: connect of rank 0, and of rank 2, fails at once. */
static void before_connect(struct member *member)
{
    struct crew *crew = member->crew;
    atomic_store(&crew->doomed[1], 1);
    CHECK_OK(crew_listen(member, "the id"));
    crew_publish(member);
    if (member->rank == 1) {
        check_sleep_ms(50);
        _exit(5);
    }
    const double start = check_now_ms();
    CHECK_STATUS(crew_connect(member, CREW_BOUND_MS), TRIB_ERR_CLOSED);
    if ((crew->flags & TRI_PEERS_NO_PIDFD) == 0 || member->rank == 0)
        CHECK_DETAIL("rank 1 (process ");
    CHECK(check_now_ms() - start < CREW_BOUND_MS / 2);
    crew_close(member);
}

/* Both sides of a missing rank: rank 0 would connect to rank 1, and rank 2 be connected to by it. */
static void late(struct member *member)
{
    CHECK_OK(crew_listen(member, "the id"));
    crew_publish(member);
    if (member->rank != 1) {
        CHECK_STATUS(crew_connect(member, 300), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("rank 1 (process ");
        CHECK_DETAIL("1 ranks are missing");
    }
    crew_meet(member->crew, 0, 3);
    crew_close(member);
}

/* ------------------------------------------------------------------------------ what the system says */

static pid_t child_of(int signal, int code)
{
    const pid_t pid = fork();
    if (pid == 0) {
        if (signal == 0)
            _exit(code);
        (void)raise(signal);
        wait_for_ever();
    }
    return pid;
}

static void await_end(pid_t pid)
{
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
}

static void ends(void)
{
    static const struct {
        int signal, code;
        const char *text;
    } all[] = {{0, 0, "ended"},
               {0, 77, "ended with exit code 77"},
               {SIGKILL, 0, "was killed by signal 9 (SIGKILL)"},
               {SIGUSR1, 0, "was killed by signal 10"}};
    check_begin("how a process ended");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const pid_t pid = child_of(all[i].signal, all[i].code);
        const uint64_t start = tri_process_start((int32_t)pid);
        CHECK(start != 0);
        const int pidfd = tri_process_watch((int32_t)pid, start);
        await_end(pid);
        const struct tri_death_text before = tri_death_text(pidfd, (int32_t)pid, start);
        CHECK_MSG(strcmp(before.text, all[i].text) == 0, "\"%s\"", before.text);
        CHECK(tri_process_watch((int32_t)pid, start + 1) < 0); /* another process had that pid */
        CHECK(waitpid(pid, NULL, 0) == pid);
        CHECK(tri_process_watch((int32_t)pid, start) ==
              (pidfd < 0 ? TRI_PROCESS_UNWATCHED : TRI_PROCESS_ENDED));
        const struct tri_death_text after = tri_death_text(pidfd, (int32_t)pid, start);
        CHECK_MSG(strcmp(after.text, all[i].text) == 0 || strcmp(after.text, "ended") == 0,
                  "\"%s\"", after.text);
        if (pidfd >= 0)
            (void)close(pidfd);
    }
    CHECK(tri_process_watch((int32_t)getpid(), 0) == TRI_PROCESS_UNWATCHED);
    check_end();
}

static void run(int size, const char *name, uint32_t flags, void (*body)(struct member *member),
                const char *what)
{
    check_begin("%s: %s", name, what);
    (void)crew_run(size, size, flags, body);
    check_end();
}

int main(void)
{
    for (int i = 0; i < WAYS; i++) {
        is_noticed(ways[i].name, ways[i].flags);
        run(3, ways[i].name, ways[i].flags, exits, "a rank exits");
        run(3, ways[i].name, ways[i].flags, has_child, "a killed rank has a child");
        run(2, ways[i].name, ways[i].flags, stopped, "a stopped rank is not dead");
        run(3, ways[i].name, ways[i].flags, before_connect, "a rank dies before it connects");
        run(3, ways[i].name, ways[i].flags, late, "a rank that does not connect");
        if ((ways[i].flags & TRI_PEERS_NO_PIDFD) == 0)
            run(3, ways[i].name, ways[i].flags, socket_lives_on, "a child has copies of sockets");
    }
    ends();
    return check_finish("death_test");
}

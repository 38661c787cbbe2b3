/* What the system says of another process of this host: that it has ended, and how. */
#ifndef TRI_PEERS_DEATH_H
#define TRI_PEERS_DEATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* When process `pid` started, in clock ticks since boot: with it, a pid that is used again is not
 * mistaken for the process that had it before. 0 if the system does not say. */
uint64_t tri_process_start(int32_t pid);

enum { TRI_PROCESS_UNWATCHED = -1, TRI_PROCESS_ENDED = -2 };

/* A file descriptor (a pidfd) that becomes readable when the process ends; it is the caller's.
 * TRI_PROCESS_ENDED: the process has ended. TRI_PROCESS_UNWATCHED: the system has no pidfds, or
 * does not give one; then only the end of a connection tells. */
int tri_process_watch(int32_t pid, uint64_t start);

/* "was killed by signal 9 (SIGKILL)", "ended with exit code 3", "ended". The pidfd may be
 * TRI_PROCESS_UNWATCHED. Never waits. */
struct tri_death_text {
    /* The system says that it has ended, or how it is about to: while its memory and files are
     * freed, which can take seconds where it used devices, its connections are closed and its pidfd
     * is silent. */
    bool known;
    char text[64];
};
struct tri_death_text tri_death_text(int pidfd, int32_t pid, uint64_t start);

#endif

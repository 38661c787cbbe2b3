/* The fake's pull: member `pull` of a table of kernels. */
#ifndef TRI_TESTS_NCCL_FAKE_PULL_H
#define TRI_TESTS_NCCL_FAKE_PULL_H

#include "kernels/pull.h"

trib_status fake_pull(const struct tri_pull *job, trib_stream stream);

/* Since the program began: calls that all ranks have made, captured ones as often as they were launched, and
 * those of them that went through scratch, and that were one shot by name; ranks of them that packed a list;
 * and the blocks of the last launch. */
struct fake_pulls {
    long done, staged, one_shot, packed;
    int blocks;
};
struct fake_pulls fake_pulls(void);

/* From now on what a rank stores in another one's memory is lost, or a wrong result arrives: always, only of
 * what goes through scratch, of what is stored where buffers are mapped, or of what is read there (one shot). Who has
 * no patience for ever gives up at once. */
enum fake_pulling {
    FAKE_PULL_WORKS,
    FAKE_PULL_LOSES,
    FAKE_PULL_GARBLES,
    FAKE_PULL_GARBLES_STAGED,
    FAKE_PULL_GARBLES_STORES,
    FAKE_PULL_GARBLES_READS
};
void fake_pull_as(enum fake_pulling how);

/* Of the launches from now on, number `n` (0 is the next) fails; -1: none. */
void fake_fail_pull(long n);

#endif

/* Communicators are aborted and made again, many times: nothing grows. */
#include <stdio.h>

#include "tests/faults/figures.h"
#include "tests/scenarios/scenario.h"

enum { DEVICE_KB = 64 << 10, ROUNDS = 100, WARM = 50, WARM_SLOW = 5, LONG_MS = 30000 };

long (*scenario_device_kb)(int device);

static void device_memory(long kb[TEAM_MAX], int devices)
{
    for (int device = 0; device < devices; device++)
        kb[device] = scenario_device_kb == NULL ? 0 : scenario_device_kb(device);
}

static void again(const struct faults *faults, struct team *team)
{
    if (!team_open(team, NULL))
        return;
    faults_works(team, "in the place of an aborted one");
    const double raised_at = check_now_ms();
    faults_abort(team, "again");
    for (int rank = 0; rank < team->size; rank++)
        CHECK_STATUS(trib_barrier(team->comms[rank], team->streams[rank]), TRIB_ERR_ABORTED);
    faults_returned(faults, check_now_ms() - raised_at);
    team_close(team);
}

/* What CUDA and NCCL keep for themselves, which plain NCCL keeps, too. */
static const struct figures cuda_keeps = {
    .bytes = 8 << 20, .threads = 4, .descriptors = 8, .mappings = 64, .resident_kb = 64 << 10};

void scenario_growth(const struct faults *faults)
{
    struct team team;
    long kb[2][TEAM_MAX];
    const struct figures nothing = {0};
    check_begin("%s, %d ranks: abort and create again, %d times", faults->backend, faults->size,
                ROUNDS);
    if (team_prepare(&team, faults->backend, faults->size)) {
        for (int i = 0; i < (faults->slow ? WARM_SLOW : WARM); i++)
            again(faults, &team);
        CHECK_OK(trib_quiesce(LONG_MS));
        printf(" ");             /* so that stdout has its buffer, */
        (void)figures_measure(); /* and who measures has what it keeps */
        const struct figures before = figures_measure();
        device_memory(kb[0], faults->size);
        for (int i = 0; i < ROUNDS && !check_failed(); i++)
            again(faults, &team);
        CHECK_OK(trib_quiesce(LONG_MS));
        const struct figures after = figures_measure();
        device_memory(kb[1], faults->size);
        scenario_says("bytes in use %ld -> %ld, threads %ld -> %ld, descriptors %ld -> %ld, "
                      "resident KB %ld -> %ld, device 0 KB %ld -> %ld",
                      before.bytes, after.bytes, before.threads, after.threads, before.descriptors,
                      after.descriptors, before.resident_kb, after.resident_kb, kb[0][0], kb[1][0]);
        figures_compare(before, ROUNDS, faults->slow ? cuda_keeps : nothing);
        for (int rank = 0; rank < team.size; rank++)
            CHECK_MSG(kb[1][rank] <= kb[0][rank] + DEVICE_KB, "device %d holds %ld KB more", rank,
                      kb[1][rank] - kb[0][rank]);
        for (int rank = 0; rank < team.size; rank++)
            CHECK_OK(trib_stream_destroy(team.devices[rank], team.streams[rank]));
    }
    check_end();
}

#include "tests/pull/aborts.h"

#include <cuda_runtime_api.h>

#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/team.h"

enum { RANKS_MAX = 4, COUNT = 4 << 20, ROUNDS = 5, PLENTY_MS = 20000 };

/* Only rank 0 makes the last call. All is allocated before, for CUDA may wait for devices that run. */
static void queue_unequal(const struct team *team, void **data)
{
    for (int r = 0; r < team->size; r++) {
        MUST(cudaSetDevice(r));
        MUST(cudaMalloc(&data[r], COUNT * sizeof(float)));
        MUST(cudaMemset(data[r], 0, COUNT * sizeof(float)));
        MUST(cudaDeviceSynchronize());
    }
    for (int r = 0; r < team->size; r++)
        for (int i = 0; i < 3 + (r == 0); i++)
            CHECK_OK(trib_allreduce(team->comms[r], data[r], data[r], COUNT, TRIB_F32, TRIB_SUM,
                                    team->streams[r]));
}

/* An abort ends that call, and all buffers can then be freed. False as `aborts`. */
static bool abort_amid(int ranks, int ms)
{
    struct team team;
    trib_abort *handle = NULL;
    void *data[RANKS_MAX];
    if (!team_create(&team, "nccl", ranks, NULL))
        return false;
    queue_unequal(&team, data);
    check_sleep_ms(ms);
    CHECK_OK(trib_comm_abort_handle(&handle, team.comms[1]));
    CHECK_OK(trib_abort_raise(handle, "enough"));
    trib_abort_release(handle);
    for (int r = 0; r < ranks; r++) {
        if (!team_wait(&team, r, PLENTY_MS))
            return false;
        CHECK_STATUS(trib_comm_status(team.comms[r]), TRIB_ERR_ABORTED);
        MUST(cudaSetDevice(r));
        MUST(cudaFree(data[r]));
    }
    team_close(&team);
    team_destroy(&team);
    return true;
}

bool aborts(int ranks)
{
    bool good = true;
    for (int round = 0; round < ROUNDS && good; round++) {
        check_begin("%d ranks: an abort while one waits, round %d", ranks, round);
        good = abort_amid(ranks, round % 2 != 0 ? 50 : 0);
        check_end();
    }
    check_begin("%d ranks: nothing that was aborted is left", ranks);
    CHECK_OK(trib_quiesce(PLENTY_MS));
    check_end();
    return good;
}

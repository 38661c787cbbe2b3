/* trib_quiesce counts the work that communicators leave to the background, and waits until it is
 * done. */
#include <stdatomic.h>
#include <string.h>

#include "tests/check.h"
#include "tests/team.h"

enum { ELEMENTS = 100, PLENTY_MS = 20000 };

static _Atomic bool released;

static void idle(void)
{
    check_begin("quiesce: nothing to wait for");
    const double start = check_now_ms();
    CHECK_OK(trib_quiesce(PLENTY_MS));
    CHECK_OK(trib_quiesce(0));
    CHECK(check_now_ms() - start < PLENTY_MS / 2);
    check_end();
}

/* A communicator of one rank goes while its list stands behind something that does not end: the
 * workspace is set aside until it does. */
static void aside(void)
{
    struct team team;
    trib_abort *handle = NULL;
    void *data = NULL;
    check_begin("quiesce: a workspace that was set aside");
    if (!team_create(&team, "host", 1, NULL))
        return;
    CHECK_OK(trib_device_alloc(&data, team.devices[0], ELEMENTS * sizeof(float)));
    const trib_tensor list[] = {{data, ELEMENTS, TRIB_F32, 0}};
    atomic_store(&released, false);
    CHECK_OK(trib_stream_submit(team.devices[0], team_hold, &released, team.streams[0]));
    CHECK_OK(trib_allreduce_list(team.comms[0], list, 1, TRIB_SUM, team.streams[0]));
    CHECK_OK(trib_comm_abort_handle(&handle, team.comms[0]));
    CHECK_OK(trib_abort_raise(handle, "it goes"));
    trib_abort_release(handle);
    CHECK_OK(trib_comm_destroy(team.comms[0]));
    team.comms[0] = NULL;
    CHECK_STATUS(trib_quiesce(20), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("1 workspaces");
    CHECK_DETAIL("0 live CUDA graphs");
    atomic_store(&released, true);
    CHECK_OK(trib_quiesce(PLENTY_MS));
    team_destroy(&team);
    CHECK_OK(trib_device_free(team.devices[0], data));
    check_end();
}

int main(void)
{
    idle();
    aside();
    return check_finish("quiesce_test");
}

/* A build without a tracer says so once when somebody asks, and works. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "csrc/tracer.h"
#include "tests/team.h"

const struct tri_tracer *const tri_tracer = NULL; /* whatever the build has */

static int warnings;

static void keep(void *context, int32_t level, const char *line)
{
    (void)context;
    if (strstr(line, "NVTX") == NULL)
        return;
    CHECK(level == TRIB_LOG_WARN);
    CHECK(strcmp(line, "TRIBUTARY_NVTX is set, but this build has no NVTX: its header "
                       "nvtx3/nvToolsExt.h was not found") == 0);
    warnings++;
}

int main(void)
{
    struct team team;
    float data[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    (void)setenv("TRIBUTARY_NVTX", "1", 1);
    check_begin("a build without a tracer");
    CHECK_OK(trib_log_set(keep, NULL, TRIB_LOG_INFO));
    for (int round = 0; round < 2; round++) {
        if (team_create(&team, "host", 2, NULL))
            for (int rank = 0; rank < 2; rank++)
                CHECK_OK(trib_allreduce(team.comms[rank], data[rank], data[rank], 4, TRIB_F32,
                                        TRIB_SUM, team.streams[rank]));
        team_destroy(&team);
    }
    CHECK(data[0][0] == 12 && data[1][3] == 24); /* of 6 and 6, of 12 and 12 */
    CHECK_OK(trib_log_set(NULL, NULL, 0));
    CHECK(warnings == 1);
    check_end();
    return check_finish("untraced_test");
}

/* Small calls by push inside one process and large ones by pull, through the whole library over the fake of CUDA and
 * NCCL. */
#include "tests/check.h"
#include "tests/nccl_fake/push/cases.h"

int main(void)
{
    push_limits();
    push_calls();
    push_kinds();
    push_streams();
    push_graphs();
    push_absent();
    push_ends();
    push_closes();
    push_children();
    pull_calls();
    pull_lists();
    pull_memory();
    push_variants();
    push_buffers();
    push_symmetric();
    push_windows();
    push_near();
    push_hosts();
    pull_streams();
    pull_absent();
    pull_ends();
    push_kept();
    pull_kept();
    push_graphs_kept();
    push_symmetric_kept();
    return check_finish("nccl_push_test");
}

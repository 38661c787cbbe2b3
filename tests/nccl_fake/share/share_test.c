/* Small calls by push between processes, through the nccl backend over the fake of CUDA and NCCL. */
#include "tests/check.h"
#include "tests/nccl_fake/share/cases.h"

int main(void)
{
    share_calls();
    share_graphs();
    share_offers();
    share_refusals();
    share_failures();
    share_aborts();
    share_large();
    share_ends();
    return check_finish("nccl_share_test");
}

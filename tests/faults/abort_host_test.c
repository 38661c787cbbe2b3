/* Aborts, missing ranks and deadlines on the host backend. */
#include <stdlib.h>

#include "tests/faults/abort.h"

int main(void)
{
    const int repetitions = getenv("TRIB_TEST_QUICK") == NULL ? 1000 : 100;
    const int sizes[] = {2, 3, 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct faults faults = {
            .backend = "host", .size = sizes[i], .repetitions = repetitions, .bound_ms = 2000};
        faults_suite(&faults);
        faults_leave(&faults);
    }
    return check_finish("abort_host_test");
}

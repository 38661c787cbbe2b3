/* Which calls of a rank read the clock, and which of them its backend marks. */
#include "csrc/core/pace.h"

#include "csrc/base/clock.h"

/* Calls this close to each other need no marks of their own; between marks at most so long. */
enum { CLOSE_NS = 50000, LONGEST_NS = 1000000 };

void tri_pace_read(struct tri_pace *pace)
{
    const uint64_t now = tri_now_ns();
    pace->close = now - pace->read_ns < (uint64_t)pace->unread * CLOSE_NS;
    pace->marks = pace->marks || !pace->close || now - pace->marked_ns > LONGEST_NS;
    if (pace->marks)
        pace->marked_ns = now;
    pace->read_ns = now;
    pace->unread = 0;
}

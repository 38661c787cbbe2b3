/* A second file with the header: nothing in it may be defined twice. */
#include "tributary.h"

const char *two(void);

const char *two(void)
{
    return trib_status_message(TRIB_OK);
}

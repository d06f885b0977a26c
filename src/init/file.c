#include "init/file.h"

#include "init/connection.h"
#include "init/init.h"

#include <errno.h>

int file_begin(struct job *job, size_t length)
{
    (void)job;
    (void)length;
    return -1;
}

void file_end(struct job *job)
{
    job_release(job);
}

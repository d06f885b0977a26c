#include "base/clock.h"

#include "base/macros.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t system_boot_us(const struct clock *clock UNUSED)
{
    return read_clock(CLOCK_BOOTTIME);
}

static int64_t system_wall_us(const struct clock *clock UNUSED)
{
    return read_clock(CLOCK_REALTIME);
}

const struct clock clock_system = { .boot_us = system_boot_us, .wall_us = system_wall_us };

static int64_t simulated_boot_us(const struct clock *clock)
{
    return container_of(clock, const struct simulated_clock, clock)->boot_us;
}

static int64_t simulated_wall_us(const struct clock *clock)
{
    return container_of(clock, const struct simulated_clock, clock)->wall_us;
}

void simulated_clock_init(struct simulated_clock *clock, int64_t boot_us, int64_t wall_us)
{
    *clock = (struct simulated_clock){
        .clock = { .boot_us = simulated_boot_us, .wall_us = simulated_wall_us },
        .boot_us = boot_us,
        .wall_us = wall_us,
    };
}

void simulated_clock_advance(struct simulated_clock *clock, int64_t us)
{
    clock->boot_us += us;
    clock->wall_us += us;
}

void clock_format(int64_t wall_us, char text[CLOCK_TEXT_SIZE])
{
    time_t seconds = (time_t)(wall_us / 1000000);
    size_t length;
    struct tm utc;

    gmtime_r(&seconds, &utc);
    length = strftime(text, CLOCK_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + length, CLOCK_TEXT_SIZE - length, ".%03dZ", (int)(wall_us / 1000 % 1000));
}

/* The digits after the point as microseconds; finer ones are dropped. Returns what follows. */
static const char *parse_fraction(const char *text, int64_t *out_us)
{
    int64_t unit_us = 100000;

    *out_us = 0;
    for (; *text >= '0' && *text <= '9'; text++, unit_us /= 10)
        *out_us += (*text - '0') * unit_us;
    return text;
}

int clock_parse(const char *text, int64_t *out_wall_us)
{
    struct tm utc = { 0 };
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    int64_t fraction_us = 0;

    if (!rest)
        return -1;
    if (rest[0] == '.' && rest[1] >= '0' && rest[1] <= '9')
        rest = parse_fraction(rest + 1, &fraction_us);
    if (strcmp(rest, "Z") != 0)
        return -1;
    *out_wall_us = (int64_t)timegm(&utc) * 1000000 + fraction_us;
    return 0;
}

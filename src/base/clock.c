/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include "base/macros.h"

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

static void write_digits(char *at, int64_t value, size_t width)
{
    while (width--) {
        at[width] = (char)('0' + value % 10);
        value /= 10;
    }
}

/* The date of a day counted from 1970, in years that begin in March, so that the leap day is the
 * last one; an era is the 400 years after which the calendar repeats. */
static void write_date(char *at, int64_t days_since_epoch)
{
    int64_t days = days_since_epoch + 719468;
    int64_t era = days / 146097;
    int64_t day_of_era = days % 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month_from_march = (5 * day_of_year + 2) / 153;
    int64_t month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;

    write_digits(at, era * 400 + year_of_era + (month <= 2), 4);
    write_digits(at + 5, month, 2);
    write_digits(at + 8, day_of_year - (153 * month_from_march + 2) / 5 + 1, 2);
}

/* Every answer has several times in it; with gmtime() and strftime() they would take a third of the
 * time of writing it. */
void clock_format(int64_t wall_us, char text[CLOCK_TEXT_SIZE])
{
    static const int64_t last_us = INT64_C(253402300799999999); /* the end of the year 9999 */
    int64_t us = MIN(MAX(wall_us, (int64_t)0), last_us);
    int64_t second_of_day = us / 1000000 % 86400;

    memcpy(text, "0000-00-00T00:00:00.000Z", sizeof("0000-00-00T00:00:00.000Z"));
    write_date(text, us / 1000000 / 86400);
    write_digits(text + 11, second_of_day / 3600, 2);
    write_digits(text + 14, second_of_day / 60 % 60, 2);
    write_digits(text + 17, second_of_day % 60, 2);
    write_digits(text + 20, us / 1000 % 1000, 3);
}

/* The digits after the point as microseconds; finer ones are dropped. Returns the rest of the
 * text. */
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

/* Every example of docs/contract.md: a block is the schema, then indented lines of contract, then "# arguments => result". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "contract_call.h"

static char *read_page(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s cannot be read", path);
    static char page[200000];
    const size_t n = fread(page, 1, sizeof page - 1, f);
    fclose(f);
    page[n] = 0;
    return page;
}

static void check_call(const dv__contract *c, const dv__schema *schema, char *line)
{
    static call arguments;
    char *result = strstr(line, " => ");
    assert_non_null(result);
    *result = 0;
    result += 4;
    call_parse(&arguments, line);
    if (arguments.n != schema->nargs)
        fail_msg("%s: %zu arguments of %zu: %s", schema->name, arguments.n, schema->nargs, line);
    char *got = call_run(c, schema, &arguments, true);
    const bool error = !strncmp(result, "error: ", 7);
    if (error ? strncmp(got, "error: ", 7) || !strstr(got, result + 7) : strcmp(got, result) != 0)
        fail_msg("%s(%s)\n  the page says: %s\n  found:         %s", schema->name, line, result, got);
    dv__free(got);
}

static int check_block(char *block)
{
    char *save = NULL, *schema_text = strtok_r(block, "\n", &save), *line, text[4000] = "", name[100];
    dv__schema *schema;
    dv__contract *c = NULL;
    int calls = 0;
    if (dv__schema_parse(schema_text, &schema))
        fail_msg("%s: %s", schema_text, dv_last_error());
    snprintf(name, sizeof name, "my::%s", schema->name);
    while ((line = strtok_r(NULL, "\n", &save))) {
        if (*line == ' ') {
            strcat(strcat(text, line), "\n");
            continue;
        }
        if (!c && dv__contract_parse(text, name, schema, &c))
            fail_msg("%s: %s", schema_text, dv_last_error());
        assert_memory_equal(line, "# ", 2);
        check_call(c, schema, line + 2);
        calls++;
    }
    if (!c && dv__contract_parse(text, name, schema, &c))
        fail_msg("%s: %s", schema_text, dv_last_error());
    dv__contract_free(c);
    dv__schema_free(schema);
    return calls;
}

static void test_examples(void **state)
{
    (void)state;
    static const char open[] = "\n```contract\n";
    int blocks = 0, calls = 0;
    for (char *at = strstr(read_page(SOURCE_DIR "/docs/contract.md"), open); at; blocks++) {
        char *block = at + strlen(open), *end = strstr(block, "\n```");
        assert_non_null(end);
        *end = 0;
        calls += check_block(block);
        at = strstr(end + 1, open);
    }
    assert_true(blocks >= 15 && calls >= 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_examples) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Prints what the compiler makes of the header's structs and constants; the test holds it against Rust's. */
#include <cairn.h>
#include <stdio.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define AT(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))

int main(void)
{
	SIZE(cairn_log_options);
	AT(cairn_log_options, frequency);
	AT(cairn_log_options, within_us);
	AT(cairn_log_options, read_only);
	SIZE(cairn_kv_options);
	AT(cairn_kv_options, transactions);
	AT(cairn_kv_options, reserved);
	SIZE(cairn_log_counts);
	SIZE(cairn_log_found);
	SIZE(cairn_kv_counts);
	SIZE(cairn_record);
	SIZE(cairn_pair);
	SIZE(cairn_change);
	AT(cairn_change, remove);
	SIZE(cairn_range);
	AT(cairn_range, reverse);
	SIZE(cairn_array_options);
	AT(cairn_array_options, transactions);
	SIZE(cairn_array_counts);
	SIZE(cairn_array_found);
	SIZE(enum cairn_group);
	return 0;
}

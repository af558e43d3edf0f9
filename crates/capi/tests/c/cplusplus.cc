// The header is C++, too: handles in owners, exceptions of the program's own around the calls.
#include <cairn.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

void ok(cairn_status status)
{
	if (status != CAIRN_OK)
		throw std::runtime_error(cairn_last_error());
}

struct Close {
	void operator()(cairn_log *log) const { cairn_log_close(log); }
	void operator()(cairn_kv *store) const { cairn_kv_close(store); }
};

cairn_status twice(cairn_tx *tx, void *context)
{
	const std::string &key = *static_cast<const std::string *>(context);
	return cairn_tx_put(tx, key.data(), key.size(), "2", 1, nullptr);
}

void run(const std::string &dir)
{
	cairn_log_options options;
	ok(cairn_log_options_init(&options, sizeof options));
	options.bytes = 1 << 20;
	cairn_log *made = nullptr;
	ok(cairn_log_create((dir + "/log").c_str(), &options, &made));
	std::unique_ptr<cairn_log, Close> log(made);
	std::uint64_t lsn = 0;
	ok(cairn_log_append(log.get(), "record", 6, &lsn));

	cairn_kv *opened = nullptr;
	ok(cairn_kv_create((dir + "/store").c_str(), nullptr, &opened));
	std::unique_ptr<cairn_kv, Close> store(opened);
	std::string key = "key", value(8, 0);
	ok(cairn_kv_transact(store.get(), CAIRN_SERIALIZABLE, twice, &key));
	std::size_t len = 0;
	ok(cairn_kv_get(store.get(), key.data(), key.size(), &value[0], value.size(), &len));
	if (lsn != 1 || len != 1 || value[0] != '2')
		throw std::runtime_error("other than written");
	bool thrown = false;
	try {
		ok(cairn_log_force(log.get(), 99));
	} catch (const std::runtime_error &) {
		thrown = true;
	}
	if (!thrown)
		throw std::runtime_error("a record that is not there was forced");
}

}

int main(int argc, char **argv)
{
	try {
		run(argc == 2 ? argv[1] : ".");
	} catch (const std::exception &error) {
		std::fprintf(stderr, "%s\n", error.what());
		return 1;
	}
	return 0;
}

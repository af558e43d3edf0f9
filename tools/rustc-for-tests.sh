#!/usr/bin/env bash
# rustc, as cargo calls it for this workspace; but the code of integration tests that wait for what they test is not optimised itself, which takes a
# seventh of the time. For `RUSTC_WORKSPACE_WRAPPER`.
set -euo pipefail
case " $* " in
*" --crate-name it "*" --test "*)
    case "${CARGO_PKG_NAME:-}" in
    cairn-cli | capi | cairn-fabric | cairn-kv | cairn-log | cairn-membership | cairn-server | testnet) set -- "${@/opt-level=[12]/opt-level=0}" ;;
    esac
    ;;
esac
exec "$@"

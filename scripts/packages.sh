# Debian packages that swaplab needs; sourced by demo.sh and test.sh. Installs what is missing when run
# as root, otherwise says exactly what to install and stops.
swaplab_packages() {
  local wanted=(g++ cmake ninja-build pkg-config libboost-program-options-dev libboost-graph-dev nlohmann-json3-dev
    libsimdjson-dev libyaml-cpp-dev libzstd-dev libxxhash-dev zlib1g-dev libeigen3-dev libsqlite3-dev libssl-dev
    protobuf-compiler libprotobuf-dev "$@")
  local missing=()
  for package in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    echo "error: missing Debian packages; install them and run this again:" >&2
    echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "installing: ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

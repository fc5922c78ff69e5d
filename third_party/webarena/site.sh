#!/usr/bin/env bash
# Brings one site of one replica up, or back to its first state, and tells it its address.
#
#   HOST=sites.example ./site.sh a.env shopping          start it, where it does not run
#   HOST=sites.example ./site.sh a.env shopping --reset  throw its container away first
#
# a.env holds the ports of the replica (SHOPPING_PORT=7770 and so on); its name is the project's.
set -euo pipefail
env_file=$(realpath "$1") site=$2 again=${3:-}
cd "$(dirname "$0")"
: "${HOST:?set HOST to the name or address by which the sites are reached}"
set -a
# shellcheck source=/dev/null
source "$env_file"
set +a
compose=(docker compose --env-file "$env_file" -p "$(basename "$env_file" .env)")
port_variable=$(tr '[:lower:]' '[:upper:]' <<<"$site")_PORT
port=${!port_variable:-}
: "${port:?$env_file does not set $port_variable}"
in_it() { "${compose[@]}" exec -T "$site" "$@"; }

# Until it succeeds, for as many seconds.
patiently() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS > end)); then
      echo "$site: gave up: $*" >&2
      exit 1
    fi
    sleep 3
  done
}

magento() {
  local base="http://$HOST:$port" bin=/var/www/magento2/bin/magento
  patiently 300 in_it mysql -u magentouser -pMyPassword magentodb -e 'SELECT 1'
  patiently 300 in_it $bin setup:store-config:set --base-url="$base"
  in_it mysql -u magentouser -pMyPassword magentodb \
    -e "UPDATE core_config_data SET value='$base/' WHERE path = 'web/secure/base_url';"
  # No new password asked for, a log-in lasts a day, and does not end the account's other sessions.
  if [[ $site == shopping_admin ]]; then
    in_it $bin config:set admin/security/password_is_forced 0
    in_it $bin config:set admin/security/password_lifetime 0
    in_it $bin config:set admin/security/session_lifetime 86400
    in_it $bin config:set admin/security/admin_account_sharing 1
  fi
  in_it $bin cache:flush
}

"${compose[@]}" up -d --no-deps ${again:+--force-recreate --renew-anon-volumes} "$site"
case $site in
  shopping | shopping_admin) magento ;;
  reddit) # posts and comments come faster from many agents than from a person
    for kind in Comment Submission User; do
      in_it sed -i '/@RateLimit/,/)/d' "/var/www/html/src/DataObject/${kind}Data.php"
    done
    in_it bin/console cache:clear --env=prod
    ;;
  gitlab)
    patiently 600 in_it gitlab-ctl status
    in_it sed -i "s|^external_url.*|external_url 'http://$HOST:$port'|" /etc/gitlab/gitlab.rb
    in_it gitlab-ctl reconfigure
    ;;
esac
echo "$site: http://$HOST:$port"

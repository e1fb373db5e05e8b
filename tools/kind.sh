#!/bin/sh
# Usage: kind.sh up|down
# up makes a kind cluster, builds and loads the images, installs MBCAS and a small shop on it,
# and says how to watch. down deletes the cluster.
set -eu
cd "$(dirname "$0")/.."
cluster=${KIND_CLUSTER:-mbcas}
context=kind-$cluster

for program in kind docker kubectl; do
	command -v "$program" >/dev/null || {
		echo "no $program in PATH; kind-demo needs kind (https://kind.sigs.k8s.io), docker and kubectl. make demo needs none of them"
		exit 1
	}
done

case ${1:-up} in
down)
	kind delete cluster --name "$cluster"
	exit
	;;
up) ;;
*)
	echo "usage: kind.sh up|down" >&2
	exit 2
	;;
esac

kind get clusters | grep -qx "$cluster" || kind create cluster --name "$cluster" --wait 120s
for part in agent controller; do
	docker build --target "$part" -t "mbcas.io/$part:dev" .
	kind load docker-image --name "$cluster" "mbcas.io/$part:dev"
done
kubectl --context "$context" apply -k config/overlays/kind
kubectl --context "$context" -n mbcas-system rollout status deployment/mbcas-controller --timeout=180s
kubectl --context "$context" -n mbcas-system rollout status daemonset/mbcas-agent --timeout=180s
kubectl --context "$context" apply -f config/samples/shop.yaml
cat <<END

MBCAS runs on $context. Look at what it does:
  kubectl --context $context get podallocations -n mbcas-shop -w
  make build && bin/kubectl-mbcas --context $context list -n mbcas-shop
Get out again:
  KUBECTL="kubectl --context $context" config/uninstall.sh   (restores first)
  make kind-down                                                            (deletes the cluster)
END

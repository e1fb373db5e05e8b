#!/bin/sh
# Usage: install.sh kind|kind-down|minikube
# Builds the images and installs MBCAS: on a new kind cluster with a small shop, or on a minikube that
# runs. kind-down deletes the kind cluster.
set -eu
cd "$(dirname "$0")/.."
case ${1-} in
kind | kind-down | minikube) on=${1%-down} ;;
*)
	echo "usage: tools/install.sh kind|kind-down|minikube" >&2
	exit 2
	;;
esac
kind_cluster=${KIND_CLUSTER:-mbcas}
profile=${MINIKUBE_PROFILE:-minikube}

for program in "$on" docker kubectl; do
	command -v "$program" >/dev/null || {
		echo "no $program in PATH; this needs $on, docker and kubectl. make demo needs none of them"
		exit 1
	}
done
case $1 in
kind-down) exec kind delete cluster --name "$kind_cluster" ;;
kind)
	context=kind-$kind_cluster
	load() { kind load docker-image --name "$kind_cluster" "$1"; }
	kind get clusters | grep -qx "$kind_cluster" || kind create cluster --name "$kind_cluster" --wait 120s
	;;
minikube)
	context=$profile
	load() { minikube -p "$profile" image load "$1"; }
	minikube -p "$profile" status >/dev/null || {
		echo "minikube profile $profile does not run; start it with: minikube start -p $profile --kubernetes-version=v1.36.0"
		exit 1
	}
	;;
esac

for part in agent controller; do
	docker build --target "$part" -t "mbcas.io/$part:dev" .
	load "mbcas.io/$part:dev"
done
kubectl --context "$context" apply -k "config/overlays/$on"
kubectl --context "$context" -n mbcas-system rollout status deployment/mbcas-controller --timeout=180s
kubectl --context "$context" -n mbcas-system rollout status daemonset/mbcas-agent --timeout=180s
if [ "$on" = kind ]; then
	kubectl --context "$context" apply -f config/samples/shop.yaml
	echo "look at what MBCAS does: make build, then"
	echo "  bin/kubectl-mbcas --context $context list -n mbcas-shop"
	echo "  kubectl --context $context get podallocations -n mbcas-shop -w"
fi
echo "take it off again, restoring first: KUBECTL=\"kubectl --context $context\" config/uninstall.sh"

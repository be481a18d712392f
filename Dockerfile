# Trains on an NVIDIA GPU; the image is large, since JAX brings CUDA. Never built: no GPU was at hand.
#   docker build -t rcrl . && docker run --gpus=all -v "$PWD/runs:/rcrl/runs" rcrl atari GAME=Pong
FROM python:3.12-slim-bookworm
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends \
  g++ make git libegl1 libgl1 libgl1-mesa-dri && rm -rf /var/lib/apt/lists/*
WORKDIR /rcrl
COPY . .
RUN make .venv/accelerator-cuda13
ENTRYPOINT ["make", "GPU=cuda13"]
CMD ["trial"]

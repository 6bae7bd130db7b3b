# frozen_string_literal: true

# Reads the whole body, and says how much there was. Where the client has said how much there should be, anything else
# is an error.
run lambda { |env|
  length = 0
  input = env["rack.input"]
  while (piece = input&.read(65_536))
    length += piece.bytesize
  end
  wanted = env["HTTP_X_LENGTH"]
  [wanted && wanted.to_i != length ? 400 : 200, { "content-type" => "text/plain" }, [length.to_s]]
}
